#include <fmt/format.h>

#include "base/error.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

ValueId Decoder::experts(ValueId x, const std::string& ours, const std::string& theirs, const ExpertStyle& style) {
  const int64_t inner = c.moe_intermediate_size, count = c.num_experts;
  if (c.glu_limit <= 0 && c.activation != "silu" && c.activation != "swish")
    fail_missing("experts with \"hidden_act\": \"{}\" are not built in: silu is", c.activation);
  const std::string router_name = theirs + std::string(style.router);
  const ValueId router = matrix(ours + "router", width, {{router_name + ".weight", 0, count}}, std);
  const ValueId b_router = style.bias ? bias(ours + "router_bias", {{router_name + ".bias", 0, count}}) : kNone;
  routed_.push_back(route(g, linear(g, x, router, b_router), c.experts_per_token, c.norm_topk_prob));
  const Routing& r = routed_.back();

  const auto gate_up = [&](const char* suffix) {
    std::vector<Segment> s;
    for (int64_t e = 0; e < count; ++e)
      for (const char* name : {"gate_proj", "up_proj"})
        s.push_back({fmt::format("{}experts.{}.{}{}", theirs, e, name, suffix), 0, inner});
    return s;
  };
  const auto down = [&](const char* suffix) {
    std::vector<Segment> s;
    for (int64_t e = 0; e < count; ++e)
      s.push_back({fmt::format("{}experts.{}.down_proj{}", theirs, e, suffix), 0, width});
    return s;
  };
  const auto product = [&](ValueId rows, const char* name, int64_t cols, const auto& segments) {
    const ValueId w = matrix(ours + name, cols, segments(".weight"), std);
    param(w).experts = count;
    const ValueId y = expert_linear(g, rows, w, r.first, count);
    return style.bias ? expert_bias(g, y, r, bias(ours + name + "_bias", segments(".bias"))) : y;
  };
  const ValueId up = product(expert_gather(g, x, r), "experts_gate_up", width, gate_up);
  const ValueId h = c.glu_limit > 0
                        ? clamped_glu(g, up, {static_cast<float>(c.glu_alpha), static_cast<float>(c.glu_limit)})
                        : act(g, up, ActKind::kSwiGlu);
  const ValueId y = expert_sum(g, product(h, "experts_down", inner, down), r);
  if (c.shared_expert_intermediate_size == 0) return y;
  const ValueId gate = matrix(ours + "shared_gate", width, {{theirs + "shared_expert_gate.weight", 0, 1}}, std);
  const ValueId shared = gated_mlp(x, ours + "shared_", theirs + "shared_expert.", c.shared_expert_intermediate_size);
  return add(g, y, sigmoid_gate(g, shared, linear(g, x, gate)));
}

}  // namespace mxt::models
