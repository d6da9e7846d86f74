// Inner kernels of products with block weights: up to kTokens tokens against one group of eight rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxt::kernels::cpu {

constexpr int kTokens = 4;

struct BlockTile {
  const std::byte* group = nullptr;
  int64_t blocks = 0;
  int tokens = 0;
  const int8_t* x[kTokens] = {};    // rounded, 32 a block
  const float* dx[kTokens] = {};    // scale of each block
  const float* sx[kTokens] = {};    // sum of each block's values, as rounded
  float* out[kTokens] = {};         // eight each
};

struct BlockKernels {
  void (*q4)(const BlockTile&);
  void (*q8)(const BlockTile&);
  // 32 values to int8: scale and sum.
  void (*round)(const float* x, int8_t* q, float* d, float* s);
};
const BlockKernels& portable_blocks();
const BlockKernels* avx2_blocks();  // null where the processor has no AVX2, FMA and F16C

}  // namespace mxt::kernels::cpu
