// Whether a plan names all that a step asks it.
#pragma once

#include <string>
#include <vector>

#include "train/setup.h"

namespace mxt::train {

// Which choices of the step `plan` leaves open, as a line; empty: none. Whatever build runs it would put its own
// default there, so such a plan cannot be done as it stands. `s` was made with the plan, `ops` are of the plan's
// device.
std::string open_choices(const kernels::KernelPlan& plan, const Setup& s, kernels::Ops& ops);

// Its choices that no call of the step looks up: of another shape, or misspelt.
std::vector<std::string> unused_choices(const kernels::KernelPlan& plan, const Setup& s, kernels::Ops& ops);

}  // namespace mxt::train
