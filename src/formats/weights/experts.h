// Experts that a file holds stacked, as transformers 5 keeps them in memory and Qwen3.5's files on the Hub do:
// …mlp.experts.gate_up_proj [experts, 2·inner, width], gate's rows before up's, and …mlp.experts.down_proj [experts,
// width, inner]. They are read under the name of each expert's own matrix.
#pragma once

#include <map>
#include <set>
#include <string>

#include "formats/model_config.h"
#include "formats/safetensors.h"

namespace mxt::formats {

struct ExpertSlice {
  std::string stack;  // the file's tensor, seen as [experts · rows of one, columns]
  int64_t row = 0;    // the first of its rows
  int64_t rows = 0, cols = 0;
};
struct StackedExperts {
  std::set<std::string, std::less<>> stacks;               // names of the file's tensors
  std::map<std::string, ExpertSlice, std::less<>> slices;  // …mlp.experts.3.gate_proj.weight
};

// kBadInput where a stack's shape is not what the configuration says, or where it stands beside single experts.
StackedExperts find_stacked_experts(const Safetensors& files, const ModelConfig& config, const std::string& path);

}  // namespace mxt::formats
