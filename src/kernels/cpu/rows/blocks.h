// Inner kernels of products with block weights, compiled by Highway once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/blocks.h"

namespace mxt::kernels::cpu {

constexpr int kTokens = 4;

// Up to kTokens tokens against one group of rows, weights decoded in registers.
struct BlockProduct {
  BlockKind kind = BlockKind::kQ4;
  const std::byte* group = nullptr;
  int64_t blocks = 0;
  int tokens = 0;
  const float* x = nullptr;  // [tokens][ldx]
  int64_t ldx = 0;
  float* out = nullptr;  // [tokens][32]
};
void block_product(const BlockProduct& p);

// A group's weights of some blocks as a part of a panel for the kernels of gemm/micro.h: row r at to[k·ld + r/16·strip
// + r%16].
struct BlockDecode {
  BlockKind kind = BlockKind::kQ4;
  const std::byte* first = nullptr;  // block
  int64_t blocks = 0;
  float* to = nullptr;
  int64_t ld = 0, strip = 0;
};
void block_decode(const BlockDecode& p);

}  // namespace mxt::kernels::cpu
