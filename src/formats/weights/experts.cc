#include "formats/weights/experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kUp = ".mlp.experts.gate_up_proj", kDown = ".mlp.experts.down_proj";

void check_shape(const TensorInfo& t, const std::vector<int64_t>& want, const std::string& path) {
  if (t.shape == want) return;
  const bool turned = t.shape.size() == 3 && t.shape[0] == want[0] && t.shape[1] == want[2] && t.shape[2] == want[1];
  fail_input("{}: tensor \"{}\" has shape [{}], config.json says [{}]{}", path, t.name, fmt::join(t.shape, ", "),
             fmt::join(want, ", "), turned ? ": experts that are stored transposed are not built in" : "");
}

}  // namespace

StackedExperts find_stacked_experts(const Safetensors& files, const ModelConfig& c, const std::string& path) {
  StackedExperts out;
  if (c.num_experts == 0) return out;
  const int64_t inner = c.moe_intermediate_size, width = c.hidden_size;
  for (const TensorInfo& t : files.tensors()) {
    const std::string_view name = t.name;
    const bool up = name.ends_with(kUp);
    if (!up && !name.ends_with(kDown)) continue;
    check_shape(
        t,
        up ? std::vector<int64_t>{c.num_experts, 2 * inner, width} : std::vector<int64_t>{c.num_experts, width, inner},
        path);
    out.stacks.insert(t.name);
    const std::string base(name.substr(0, name.rfind('.') + 1));
    const auto slice = [&](int64_t expert, const char* part, int64_t row, int64_t rows) {
      const std::string one = fmt::format("{}{}.{}.weight", base, expert, part);
      if (files.find(one))
        fail_input("{}: holds both \"{}\" and \"{}\": remove the one that is not meant", path, t.name, one);
      out.slices[one] = {t.name, row, rows, t.shape[2]};
    };
    for (int64_t e = 0; e < c.num_experts; ++e) {
      if (!up) {
        slice(e, "down_proj", e * width, width);
        continue;
      }
      slice(e, "gate_proj", e * 2 * inner, inner);
      slice(e, "up_proj", e * 2 * inner + inner, inner);
    }
  }
  return out;
}

}  // namespace mxt::formats
