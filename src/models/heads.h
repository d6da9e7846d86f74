// Heads that stand in the language model's place. A file of the base model need not hold them.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace mxt::models {

// The parameter of Head::kScore, in a file formats::kScoreWeight.
inline constexpr std::string_view kScoreHead = "score";
inline bool is_head(const graph::Param& p) { return p.name == kScoreHead; }

}  // namespace mxt::models
