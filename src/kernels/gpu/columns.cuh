// Sums over the rows of a matrix, column by column, in a fixed order: rows are cut into chunks whose number depends on
// the row count alone, each chunk's partial sums go to scratch, and a second kernel adds the chunks in order.
#pragma once

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::MXT_GPU_NS {

inline int64_t chunk_rows(int64_t rows) { return rows <= 64 * 256 ? 64 : ceil_div(rows, 256); }
inline int64_t chunk_count(int64_t rows) { return ceil_div(rows, chunk_rows(rows)); }

// out[c] (+)= Σ_chunk partial[chunk·stride + c]
static __global__ void add_chunks(const float* partial, int64_t chunks, int64_t stride, int64_t cols, float* out,
                                  bool accumulate) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float sum = accumulate ? out[c] : 0.0f;
  for (int64_t i = 0; i < chunks; ++i) sum += partial[i * stride + c];
  out[c] = sum;
}
static inline void add_chunks(Stream s, const float* partial, int64_t chunks, int64_t stride, int64_t cols, float* out,
                              bool accumulate) {
  if (out == nullptr) return;
  add_chunks<<<static_cast<unsigned>(ceil_div(cols, 128)), 128, 0, s>>>(partial, chunks, stride, cols, out, accumulate);
  check_launch("add_chunks");
}

}  // namespace mxt::kernels::MXT_GPU_NS
