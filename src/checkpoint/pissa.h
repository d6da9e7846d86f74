// PiSSA (Meng et al. 2024): an adapter begins as the largest singular values of its base matrix, which keeps the rest.
//   W = U S Vᵀ:  B = U_r √S_r/√scale,  A = √S_r V_rᵀ/√scale,  W ← W − scale·B·A
// as PEFT's init_lora_weights "pissa" does. Saved it is the difference from that beginning, [A; A₀] and [B, −B₀], which
// belongs to the base as it was, as PEFT's path_initial_model_for_weight_conversion saves it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

// The r largest singular triples of w [rows, cols]: u [rows, r], s [r] descending, v [r, cols] (of which the element of
// largest magnitude in each row of u is positive). From the eigenvectors of the smaller of w·wᵀ and wᵀ·w in double, so
// that singular values far below the largest are lost in its rounding: 1e-8 of it. r ≤ min(rows, cols).
struct Singular {
  std::vector<float> u, s, v;
};
Singular largest_singular(const float* w, int64_t rows, int64_t cols, int64_t r);

// Adapters as they began, by module.
class PissaStart {
 public:
  struct Pair {
    std::vector<float> a, b;  // [rank, in], [out, rank]
  };
  std::map<std::string, Pair> modules;
};

// Takes every adapter out of its base matrix, both in `params`. Errors: kBadInput where a rank is more than the matrix
// has; kMissing for bases held in codes or E4M3, and for experts.
PissaStart init_pissa(const graph::Graph& g, runtime::ParamStore& params);

}  // namespace mxt::checkpoint
