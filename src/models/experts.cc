#include <fmt/format.h>

#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

ValueId Decoder::experts(ValueId x, const std::string& ours, const std::string& theirs) {
  const int64_t inner = c.moe_intermediate_size, count = c.num_experts;
  const ValueId router = matrix(ours + "router", width, {{theirs + "gate.weight", 0, count}}, std);
  routed_.push_back(route(g, linear(g, x, router), c.experts_per_token, c.norm_topk_prob));
  const Routing& r = routed_.back();

  std::vector<Segment> gate_up, down;
  for (int64_t e = 0; e < count; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", theirs, e);
    gate_up.push_back({expert + "gate_proj.weight", 0, inner});
    gate_up.push_back({expert + "up_proj.weight", 0, inner});
    down.push_back({expert + "down_proj.weight", 0, width});
  }
  const auto stack = [&](const char* name, int64_t cols, std::vector<Segment> segments) {
    const ValueId w = matrix(ours + name, cols, std::move(segments), std);
    g.params[static_cast<size_t>(g.value(w).param)].experts = count;
    return w;
  };
  const ValueId w_up = stack("experts_gate_up", width, std::move(gate_up));
  const ValueId up = act(g, expert_linear(g, expert_gather(g, x, r), w_up, r.first, count), ActKind::kSwiGlu);
  const ValueId w_down = stack("experts_down", inner, std::move(down));
  const ValueId y = expert_sum(g, expert_linear(g, up, w_down, r.first, count), r);
  if (c.shared_expert_intermediate_size == 0) return y;
  const ValueId gate = matrix(ours + "shared_gate", width, {{theirs + "shared_expert_gate.weight", 0, 1}}, std);
  const ValueId shared = gated_mlp(x, ours + "shared_", theirs + "shared_expert.", c.shared_expert_intermediate_size);
  return add(g, y, sigmoid_gate(g, shared, linear(g, x, gate)));
}

}  // namespace mxt::models
