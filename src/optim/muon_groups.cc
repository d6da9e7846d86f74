#include "optim/muon_groups.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/schedule.h"

namespace mxt::optim {
namespace {

bool any_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view p) { return name.find(p) != std::string_view::npos; });
}

}  // namespace

MuonGroup muon_group(const config::Optimizer& o, const graph::Param& p) {
  const config::Muon& m = *o.muon;
  const std::string_view name = p.segments.empty() ? std::string_view(p.name) : p.segments.front().name;
  const double embedding = m.embedding_lr.value_or(o.lr), head = m.head_lr.value_or(o.lr),
               scalar = m.scalar_lr.value_or(o.lr);
  const bool embeds = p.kind == graph::ParamKind::kEmbedding,
             heads = any_of(name, {"lm_head"}) || name == "score.weight";
  const bool values = any_of(name, {"value_embeds"}), smears = any_of(name, {"smear", "backout_lambda"});
  const bool lambdas = any_of(name, {"resid_lambdas", "x0_lambdas"});
  const bool block_matrix = p.kind == graph::ParamKind::kMatrix && !heads && !values && !smears && !lambdas;
  if (block_matrix) return {true};
  MuonGroup g{false, scalar, 0.8, 0.95, 1e-10, 0};
  if (values)
    g = {false, embedding / 2, 0.8, 0.995, 1e-10, 0.01};
  else if (heads)
    g = {false, head, 0.8, 0.96, 1e-10, 0.01};
  else if (embeds)
    g = {false, embedding, 0.8, 0.995, 1e-10, 0.001};
  else if (any_of(name, {"resid_lambdas"}))
    g = {false, 0.01 * scalar, 0.8, 0.95, 1e-10, 0.05};
  else if (any_of(name, {"x0_lambdas"}))
    g = {false, scalar, 0.96, 0.95, 1e-10, 0};
  else if (smears)
    g.lr = 0.2;
  if (m.variant == config::MuonVariant::kTorch) {
    g.beta1 = o.betas[0], g.beta2 = o.betas[1], g.eps = o.eps;
    g.weight_decay = embeds || heads || values ? o.weight_decay : 0;
  }
  return g;
}

MuonPace muon_pace(const config::Muon& m, const config::Schedule& schedule, int64_t s, int64_t steps) {
  const auto at = static_cast<double>(s), all = static_cast<double>(steps);
  switch (m.schedule) {
    case config::MuonSchedule::kNone:
      return {m.momentum, 1};
    case config::MuonSchedule::kSft: {
      const double x = std::min(at / 300, 1.0);
      return {(1 - x) * 0.85 + x * 0.95, 0};
    }
    case config::MuonSchedule::kPretrain:
      break;
  }
  const double decay = (1 + std::cos(std::numbers::pi * at / all)) / 2;
  if (s < 400) {
    const double x = at / 400;
    return {(1 - x) * 0.85 + x * 0.97, decay};
  }
  const double fall = falling_steps(schedule, steps), start = all - fall;
  if (fall == 0 || at < start) return {0.97, decay};
  const double x = (at - start) / fall;
  return {0.97 * (1 - x) + 0.90 * x, decay};
}

}  // namespace mxt::optim
