// Experts that a file holds stacked, under the name of each expert's own matrix. As transformers 5 keeps them in memory
// and Qwen3.5's files on the Hub do: …mlp.experts.gate_up_proj [experts, 2·inner, width], gate's rows before up's, and
// …mlp.experts.down_proj [experts, width, inner]. Turned (Family::turned_experts): [experts, width, 2·inner], gate's
// and up's columns in turn, and [experts, inner, width], with …gate_up_proj_bias [experts, 2·inner] and …down_proj_bias
// [experts, width].
#pragma once

#include <map>
#include <set>
#include <string>

#include "formats/model_config.h"
#include "formats/safetensors.h"

namespace mxt::formats {

struct ExpertSlice {
  std::string stack;           // the file's tensor, seen as [experts · rows of one, columns]
  int64_t row = 0;             // the first of its rows
  int64_t rows = 0, cols = 0;  // cols 0: a vector
  // pitch above 0: element (r, c) is the stack's number (row + c)·pitch + first + r·step.
  int64_t pitch = 0, first = 0, step = 1;
};
struct StackedExperts {
  std::set<std::string, std::less<>> stacks;               // names of the file's tensors
  std::map<std::string, ExpertSlice, std::less<>> slices;  // …mlp.experts.3.gate_proj.weight
};

// The parts of a family's experts as its stacks hold them.
struct ExpertStack {
  std::string_view name;                // gate_up_proj, down_proj
  std::vector<std::string_view> parts;  // gate_proj and up_proj, down_proj
  int64_t part_rows = 0, cols = 0;      // of one part
};
std::vector<ExpertStack> expert_stacks(const ModelConfig& config);

// kBadInput where a stack's shape is not what the configuration says, or where it stands beside single experts.
StackedExperts find_stacked_experts(const Safetensors& files, const ModelConfig& config, const std::string& path);

// Rows [begin, end) of a slice with a pitch, in the stack's type.
void read_turned(const std::byte* stack, DType type, const ExpertSlice& slice, int64_t begin, int64_t end,
                 std::byte* out);

}  // namespace mxt::formats
