// Products of operands held in E4M3 by Hopper's own instructions, with an adapter's product (Gemm's tail, bf16) added
// to the same sums: y is written once, where the library's product reads what the adapter's has written and adds to it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

bool rowwise_fp8_gemm_covers(const Gemm& g);
void rowwise_fp8_gemm(cudaStream_t stream, const Gemm& g);

// rowwise_fp8_few.cu: of those calls the ones of few rows, as when a model answers; rowwise_fp8_gemm() takes them.
bool rowwise_fp8_few_covers(const Gemm& g);
void rowwise_fp8_few(cudaStream_t stream, const Gemm& g);

// rowwise_fp8_dw.cu: c (fp32) = or += a·bᵀ with the rows' scales of both, a sum over many terms for each of few
// results. scratch: of what it holds hangs the order of the sums; 29 MB serve every shape best.
bool rowwise_fp8_dw_covers(const Gemm& g);
void rowwise_fp8_dw(cudaStream_t stream, const Gemm& g, void* scratch, size_t bytes);

}  // namespace mxt::kernels::cuda
