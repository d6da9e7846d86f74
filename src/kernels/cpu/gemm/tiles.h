// Products by AMX tiles of operands that are packed into tiles first: B once for all threads, 32 rows of A at a time by
// the thread that multiplies them.
//
// bf16 is multiplied as it is. An fp32 operand is the sum of three bf16 parts, x = x0 + x1 + x2 exactly (|x1| ≤
// 2^-8|x|, |x2| ≤ 2^-16|x|), and six of the nine products are summed: what is left out of a term is below 2^-23 of it,
// two roundings of fp32. Sums are fp32 and rounded 6k/32 times where one FMA after another rounds k times. (The
// construction of MKL's FLOAT_TO_BF16X3.) An infinite operand gives NaN.
//
// An element's sum has one order, whatever m, n and the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

// Longest k: what a thread packs of A is then as large as what panels lets it keep.
inline constexpr int64_t kMostTileTerms = 3072;
bool tiles_usable(int64_t k);
void tiles_gemm(const Gemm&);  // m, n ≥ 1, 1 ≤ k ≤ kMostTileTerms

}  // namespace mxt::kernels::cpu
