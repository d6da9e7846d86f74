// What products of E4M3 operands take where the library does not scale their rows and columns (every card but Hopper):
// operands widened to bf16 where the matrix units do not take E4M3, exactly, and the scales applied to the products.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

// out[rows, cols] in bf16, rows one after the other. cols is a multiple of 16.
void widen_e4m3(cudaStream_t stream, const ConstMat& q, void* out);

// c = (accumulate ? c : 0) + part·row_scale[i]·col_scale[j]; either scale may be null. part may be c itself.
void scale_product(cudaStream_t stream, const ConstMat& part, const float* row_scale, const float* col_scale,
                   bool accumulate, const Mat& c);

}  // namespace mxt::kernels::cuda
