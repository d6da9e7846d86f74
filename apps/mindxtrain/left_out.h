// What of its base a written model is without.
#pragma once

#include <string>

#include "formats/weight_source.h"
#include "graph/graph.h"

namespace mxt::app {

// Warns, by kinds, of the base's tensors that `model` does not read and `out` therefore does not hold.
void say_left_out(const graph::Graph& model, const formats::WeightSource& base, const std::string& out);

}  // namespace mxt::app
