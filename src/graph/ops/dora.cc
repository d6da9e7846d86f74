// DoRA's magnitudes (Liu et al. 2024) behind an adapted product, and NEFTune's noise before the first layer.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId dora(Graph& g, ValueId u, ValueId w, ValueId a, ValueId m, const std::vector<ValueId>& bs,
             const std::vector<LoraBlock>& blocks, ValueId bias) {
  MXT_ASSERT(bs.size() == blocks.size() && g.value(u).cols == g.value(w).rows.factor);
  const int64_t rows = g.value(w).rows.factor, ranks = g.value(a).rows.factor;
  const ValueId gain = g.add_value(1, rows, DType::kF32), norm = g.add_value(1, rows, DType::kF32),
                p = g.add_value(rows, ranks, g.act_type), q = g.add_value(ranks, ranks, g.act_type);
  std::vector<ValueId> in{w, a, m};
  in.insert(in.end(), bs.begin(), bs.end());
  g.add_op(DoraGainOp{blocks}, std::move(in), {gain, norm, p, q});
  in = {u, gain, norm, m};
  if (bias != kNone) in.push_back(bias);
  const ValueId y = g.add_value(g.value(u).rows, g.value(u).cols, g.act_type);
  g.add_op(DoraScaleOp{blocks}, std::move(in), {y});
  return y;
}

// Lengths are constants of a step: no gradient flows through the gain but into m.
static void derive_dora_scale(Backward& b, const Op& op) {
  const auto& a = std::get<DoraScaleOp>(op.attrs);
  const ValueId u = op.in[0], dy = b.grad(op.out[0]);
  if (op.in.size() > 4 && b.needs(op.in[4])) b.contributes(b.g.add_op(BiasGradOp{}, {dy}, {}), op.in[4]);
  const ValueId du = b.like(u);
  b.contributes(b.g.add_op(DoraScaleGradOp{a.blocks}, {dy, u, op.in[1], op.in[2]}, {du}), op.in[3]);
  b.accumulate(u, du);
}

ValueId embedding_noise(Graph& g, ValueId x, float alpha) {
  if (alpha <= 0) return x;
  const ValueId y = g.add_value(g.value(x).rows, g.value(x).cols, g.act_type);
  g.add_op(EmbeddingNoiseOp{alpha, g.dropouts++}, {x}, {y});
  return y;
}

static void derive_embedding_noise(Backward& b, const Op& op) { b.accumulate(op.in[0], b.grad(op.out[0])); }

const OpInfo DoraGainOp::info{.name = "dora_gain"};
const OpInfo DoraScaleOp::info{.name = "dora_scale", .derive = derive_dora_scale};
const OpInfo DoraScaleGradOp::info{.name = "dora_scale_grad"};
const OpInfo EmbeddingNoiseOp::info{.name = "embedding_noise", .derive = derive_embedding_noise, .overwrites = 1};

}  // namespace mxt::graph
