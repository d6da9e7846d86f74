// Products of bf16 that end in ReLU² or its gradient (Gemm::relu2, relu2_of): what was made of 4 × the width is neither
// written nor read once more for the activation's sake.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

bool relu2_gemm_covers(const Gemm& g);
void relu2_gemm(cudaStream_t stream, const Gemm& g);

}  // namespace mxt::kernels::cuda
