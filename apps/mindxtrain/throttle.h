// How much of the host a run on the CPU takes: train.cpu_throttle of its recipe.
#pragma once

#include "config/recipe.h"

namespace mxt::app {

// Threads: `asked`, else OMP_NUM_THREADS, else `percent` of the cores (one at least). Priority: `nice_level`; kMissing
// where the system does not let this user raise it. A recipe for a GPU sets threads alone.
void apply_throttle(const config::Recipe& recipe, int asked);

}  // namespace mxt::app
