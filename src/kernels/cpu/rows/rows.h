// y = x Wᵀ by dot products along k, where both are contiguous: W is read once, as it lies, at the speed of memory for
// few rows of x. An element is the sum of fixed lanes of k, whatever m, n and the tiling.
#pragma once

#include "kernels/api.h"

namespace mxt::kernels::cpu {

// The rows of an F32 or BF16 matrix as F32: as they lie, or widened into memory that the calling thread keeps until its
// next call.
struct F32Rows {
  const float* p;
  int64_t ld;
};
F32Rows as_f32(const ConstMat& a);

// trans_b, not trans_a.
void rows_gemm(const Gemm& g);

}  // namespace mxt::kernels::cpu
