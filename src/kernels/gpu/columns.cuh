// Sums over the rows of a matrix, column by column, in a fixed order: rows are cut into chunks whose number depends on
// the row count alone, each chunk's partial sums go to scratch, and a second kernel adds the chunks in order.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

inline int64_t chunk_rows(int64_t rows) { return rows <= 64 * 256 ? 64 : ceil_div(rows, 256); }
inline int64_t chunk_count(int64_t rows) { return ceil_div(rows, chunk_rows(rows)); }

// out[c] (+)= Σ_chunk partial[chunk·stride + c]: 32 columns a block, each eighth chunk a row of it, then the eight in
// order. A thread that went through all chunks would wait for memory most of the time: there are few columns.
static __global__ void __launch_bounds__(256)
    add_chunks(const float* partial, int64_t chunks, int64_t stride, int64_t cols, float* out, bool accumulate) {
  __shared__ float space[8][32];
  const int lane = threadIdx.x % 32, deep = threadIdx.x / 32;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0.0f;
  if (c < cols) {
#pragma unroll 8
    for (int64_t i = deep; i < chunks; i += 8) sum += partial[i * stride + c];
  }
  space[deep][lane] = sum;
  __syncthreads();
  if (deep > 0 || c >= cols) return;
  sum = accumulate ? out[c] : 0.0f;
#pragma unroll
  for (int d = 0; d < 8; ++d) sum += space[d][lane];
  out[c] = sum;
}
static inline void add_chunks(Stream s, const float* partial, int64_t chunks, int64_t stride, int64_t cols, float* out,
                              bool accumulate) {
  if (out == nullptr) return;
  add_chunks<<<static_cast<unsigned>(ceil_div(cols, 32)), 256, 0, s>>>(partial, chunks, stride, cols, out, accumulate);
  check_launch("add_chunks");
}

}  // namespace mxt::kernels::MXT_GPU_NS
