// Philox4x32-10 as base/philox.h has it, and what dropout draws from it.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

// Dropout of attention's weights (kernels/api.h: Attention); threshold 0: none.
struct AttentionDrop {
  uint64_t threshold = 0, seed = 0, stream = 0;
  float scale = 1;
  int64_t first_row = 0;
};
template <typename A>
AttentionDrop attention_drop(const A& a) {
  if (!(a.dropout > 0)) return {};
  return {static_cast<uint64_t>(static_cast<double>(a.dropout) * 0x1p32), a.seed, a.stream,
          static_cast<float>(1.0 / (1.0 - static_cast<double>(a.dropout))), a.first_row};
}

#if defined(__CUDACC__) || defined(__HIP__)

__device__ __forceinline__ uint4 philox(uint64_t key, uint64_t stream, uint64_t index) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint4 c = make_uint4(static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(stream >> 32));
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.x, p1 = uint64_t{0xCD9E8D57u} * c.z;
    c = make_uint4(static_cast<uint32_t>(p1 >> 32) ^ c.y ^ k0, static_cast<uint32_t>(p1),
                   static_cast<uint32_t>(p0 >> 32) ^ c.w ^ k1, static_cast<uint32_t>(p0));
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

__device__ __forceinline__ uint64_t attention_drop_place(int64_t head, int64_t t, int64_t s) {  // attention_drop_index
  return static_cast<uint64_t>(head) << 52 | static_cast<uint64_t>(t) << 26 | static_cast<uint64_t>(s) >> 2;
}
// The four keys from s/4·4 on; t and s are counted from first_row.
__device__ __forceinline__ uint4 attention_draw(const AttentionDrop& d, int head, int64_t t, int64_t s) {
  return philox(d.seed, d.stream, attention_drop_place(head, t, s));
}
// t and s are rows of the batch.
__device__ __forceinline__ bool attention_keeps(const AttentionDrop& d, int head, int64_t t, int64_t s) {
  s += d.first_row;
  const uint4 w = attention_draw(d, head, d.first_row + t, s);
  const int i = static_cast<int>(s & 3);
  return (i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w) >= d.threshold;
}

#endif

}  // namespace mxt::kernels::MXT_GPU_NS
