// What of routing is the same on every host backend: the choice of experts and the order of routed rows, in integers.
#pragma once

#include <cstdint>

#include "kernels/api.h"

namespace mxt::kernels {

// Indices of the k largest of `n` values, largest first, of equal ones the lower index; NaN counts as −∞.
void top_k(const float* values, int64_t n, int64_t k, int32_t* chosen);

// From the experts of slots to the order of routed rows: a counting sort by expert, which keeps slots in order.
void sort_routed_rows(const int32_t* expert, int64_t slots, int64_t experts, int32_t* row, int32_t* slot,
                      int32_t* first);

// The product of expert e: rows of a, b and c that belong to it. No rows: c is zero or stays (kWeight), nothing is to
// be done (else).
Gemm gemm_of_expert(const GroupedGemm& g, int64_t e);

}  // namespace mxt::kernels
