// Tensor maps: how the bulk copy engine cuts a matrix into boxes.
#pragma once

#include <cuda.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

// Boxes of `cols` columns (128 bytes of them) and `rows` rows of a matrix of bf16 or E4M3, laid out in shared memory as
// hopper.cuh's products read them ("128-byte swizzle"). Past the matrix's end: zeros come, nothing goes. The matrix
// begins at a multiple of 16 bytes, as its rows do.
CUtensorMap boxes_of(const ConstMat& m, int cols, int rows);

}  // namespace mxt::kernels::cuda
