// Products of bf16 by AMX tiles of operands that are packed into tiles first: B once for all threads, 32 rows of A at a
// time by the thread that multiplies them. An element's sum has one order, whatever m, n and the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels::cpu {

// Longest k: a thread packs A twice, the rows at hand and the next, within gemm/workspace.h.
inline constexpr int64_t kMostTileTerms = 3072;
bool tiles_usable(int64_t k);
void tiles_gemm(const Gemm&);  // m, n ≥ 1, 1 ≤ k ≤ kMostTileTerms

}  // namespace mxt::kernels::cpu
