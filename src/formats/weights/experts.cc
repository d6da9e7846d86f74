#include "formats/weights/experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "formats/family.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kStem = ".mlp.experts.";

void check_shape(const TensorInfo& t, const std::vector<int64_t>& want, const std::string& path) {
  if (t.shape == want) return;
  const bool turned = want.size() == 3 && t.shape.size() == 3 && t.shape[0] == want[0] && t.shape[1] == want[2] &&
                      t.shape[2] == want[1];
  fail_input("{}: tensor \"{}\" has shape [{}], config.json says [{}]{}", path, t.name, fmt::join(t.shape, ", "),
             fmt::join(want, ", "), turned ? ": experts that are stored transposed are not built in" : "");
}

// A stack of matrices, or with `bias` of vectors.
struct Found {
  const ExpertStack* stack = nullptr;
  bool bias = false;
};
Found stack_of(std::string_view name, const std::vector<ExpertStack>& stacks, bool turned) {
  const size_t at = name.rfind(kStem);
  if (at == std::string_view::npos) return {};
  std::string_view rest = name.substr(at + kStem.size());
  const bool bias = turned && rest.ends_with("_bias");
  if (bias) rest.remove_suffix(5);
  for (const ExpertStack& s : stacks)
    if (rest == s.name) return {&s, bias};
  return {};
}

std::vector<int64_t> shape_of(const Found& f, const ModelConfig& c) {
  const int64_t rows = f.stack->part_rows * static_cast<int64_t>(f.stack->parts.size());
  if (f.bias) return {c.num_experts, rows};
  if (c.family->turned_experts) return {c.num_experts, f.stack->cols, rows};
  return {c.num_experts, rows, f.stack->cols};
}

ExpertSlice slice_of(const std::string& name, const Found& f, int64_t expert, int64_t part, bool turned) {
  const auto parts = static_cast<int64_t>(f.stack->parts.size());
  ExpertSlice s{name, 0, f.stack->part_rows, f.bias ? 0 : f.stack->cols};
  if (!turned) {
    s.row = (expert * parts + part) * s.rows;
    return s;
  }
  s.row = f.bias ? expert : expert * f.stack->cols;
  s.pitch = parts * s.rows;
  s.first = part;
  s.step = parts;
  return s;
}

}  // namespace

std::vector<ExpertStack> expert_stacks(const ModelConfig& c) {
  return {{"gate_up_proj", {"gate_proj", "up_proj"}, c.moe_intermediate_size, c.hidden_size},
          {"down_proj", {"down_proj"}, c.hidden_size, c.moe_intermediate_size}};
}

StackedExperts find_stacked_experts(const Safetensors& files, const ModelConfig& c, const std::string& path) {
  StackedExperts out;
  if (c.num_experts == 0) return out;
  const bool turned = c.family->turned_experts;
  const std::vector<ExpertStack> stacks = expert_stacks(c);
  for (const TensorInfo& t : files.tensors()) {
    const Found f = stack_of(t.name, stacks, turned);
    if (!f.stack) continue;
    check_shape(t, shape_of(f, c), path);
    out.stacks.insert(t.name);
    const std::string base = t.name.substr(0, t.name.rfind('.') + 1);
    for (int64_t e = 0; e < c.num_experts; ++e)
      for (size_t part = 0; part < f.stack->parts.size(); ++part) {
        const std::string one = fmt::format("{}{}.{}.{}", base, e, f.stack->parts[part], f.bias ? "bias" : "weight");
        if (files.find(one))
          fail_input("{}: holds both \"{}\" and \"{}\": remove the one that is not meant", path, t.name, one);
        out.slices[one] = slice_of(t.name, f, e, static_cast<int64_t>(part), turned);
      }
  }
  return out;
}

void read_turned(const std::byte* stack, DType type, const ExpertSlice& s, int64_t begin, int64_t end, std::byte* out) {
  const size_t each = size_of(type);
  const int64_t cols = std::max<int64_t>(1, s.cols);
  parallel_for(0, cols, 64, [&](int64_t b, int64_t e) {
    for (int64_t c = b; c < e; ++c)
      for (int64_t r = begin; r < end; ++r)
        std::memcpy(out + static_cast<size_t>((r - begin) * cols + c) * each,
                    stack + static_cast<size_t>((s.row + c) * s.pitch + s.first + r * s.step) * each, each);
  });
}

}  // namespace mxt::formats
