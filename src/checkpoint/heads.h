// A head that is no part of the base model (models/heads.h). load_base() fills it where the file holds one and
// otherwise leaves it as it is.
#pragma once

#include <cstdint>

#include "formats/weight_source.h"
#include "graph/graph.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

// Whether g has such a head that the file does not hold.
bool lacks_head(const graph::Graph& g, const formats::WeightSource& source);
// Draws it as init_random() would.
void draw_head(const graph::Graph& g, runtime::ParamStore& params, uint64_t seed);

}  // namespace mxt::checkpoint
