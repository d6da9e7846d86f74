// How a step is cut into passes on a device with memory of its own, before anything is measured.
#pragma once

#include <functional>

#include "train/setup.h"

namespace mxt::train {

// Passes of so many rows that make so much again.
void set_pass(Setup& s, int64_t rows, graph::Recompute recompute);

// The fewest tensors, in the order of recompute_order(), with which a pass of so many rows fits, to within a
// fiftieth of all; none where not even all of them do. `fits` is asked for rising and falling numbers.
graph::Recompute fewest(const Setup& s, const std::function<bool(graph::Recompute)>& fits, bool* found);

// The largest pass of up to 16,384 tokens that fits the recipe's card without anything being made again. Where not even
// 4,096 tokens do: of the passes of at least so many the one that costs a token least, of what it makes again and of
// the weights' way into the multiprocessors. Rows that the recipe
// names stay. The optimizer's memory lies on the host where nothing else fits.
void choose_for_card(Setup& s);

}  // namespace mxt::train
