// oneDNN's matmul on plain strided operands. Primitives are kept per thread, keyed by everything they depend on, so a
// call costs a look-up.
#pragma once

#include "kernels/api.h"
#include "kernels/cpu/scratch.h"

namespace mxt::kernels::cpu {

// Whether oneDNN computes this operand type natively here: F32, and BF16 from AVX-512 BF16 on. False in a build without
// OpenMP, where oneDNN would start threads of its own.
bool onednn_usable(DType t);
bool onednn_has_amx();

// c = alpha · op(a) · op(b) …; m, n, k ≥ 1. One call of oneDNN divides a long k over the threads when the output is
// small (bf16 24×64×4100 with two threads, any fp32 product with a transposed A), so the output is cut into tiles fixed
// by the shape, each a call on one thread: the same bits on any number of threads.
void onednn_gemm(const Gemm& g);

// The whole product in one call with this thread's current number of threads: what oneDNN does alone, for comparison.
void onednn_whole(const Gemm& g);

}  // namespace mxt::kernels::cpu
