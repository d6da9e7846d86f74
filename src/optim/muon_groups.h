// Which rule a tensor goes by under Muon, and its settings.
#pragma once

#include <string_view>

#include "config/recipe.h"
#include "graph/graph.h"

namespace mxt::optim {

struct MuonGroup {
  bool muon = false;  // a matrix of the blocks; else AdamW with:
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool operator==(const MuonGroup&) const = default;
};

// By the kind of the parameter and the name of its (first) tensor in a checkpoint. For nanochat's variant betas, eps
// and decay are nanochat's; rates the recipe's.
MuonGroup muon_group(const config::Optimizer& o, const graph::Param& p);

// Momentum and weight decay (a factor) at step s = 0 … steps − 1.
struct MuonPace {
  double momentum = 0, decay = 1;
};
MuonPace muon_pace(const config::Muon& m, const config::Schedule& schedule, int64_t s, int64_t steps);

}  // namespace mxt::optim
