// One oneDNN matmul, plain strided operands. Primitives are kept per thread, keyed by everything they depend on.
#pragma once

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

// Whether oneDNN computes this operand type natively here: F32 always, BF16 from AVX-512 BF16 (or AMX) on.
bool onednn_native(DType t);

// The whole product on this thread's current number of threads (one inside a parallel region). m, n, k ≥ 1.
void onednn_gemm(const Gemm& g, Scratch scratch);
size_t onednn_scratch(const Gemm& g);

}  // namespace mxt::kernels::cpu
