// Products of few rows, y[m,n] = x[m,k]·W[n,k]ᵀ: a decoding model's, where the time is that of reading W once. bf16, up
// to 64 rows. What a row gives does not depend on how many rows there are: the sum over k has one order for every m.
#pragma once

#include <cuda_runtime.h>

#include "kernels/api.h"

namespace mxt::kernels::cuda {

bool thin_covers(const Gemm& g);
void thin_gemm(cudaStream_t stream, const Gemm& g);

// The same of experts, whose rows are 512 at most in all: 64 tokens of eight experts. What a row gives does not depend
// on the others here either. settled: what wrote `first` has ended before this kernel can start at all; with b constant
// its first rows are then on their way while the kernels before it still run.
bool thin_covers(const GroupedGemm& g);
void thin_grouped_gemm(cudaStream_t stream, const GroupedGemm& g, bool settled);

}  // namespace mxt::kernels::cuda
