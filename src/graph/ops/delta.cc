// Gated DeltaNet (Yang et al. 2024): convolution, rule, norm and the sigmoid gates that stand beside full attention
// too.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId causal_conv(Graph& g, ValueId x, ValueId w, int layer) {
  MXT_ASSERT(g.value(w).rows.factor == g.value(x).cols);
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  g.add_op(CausalConvOp{layer}, {x, w}, {y});
  return y;
}

static void derive_conv(Backward& b, const Op& op) {
  const ValueId x = op.in[0], w = op.in[1];
  const ValueId dx = b.like(x);
  Op& grad = b.g.add_op(CausalConvGradOp{}, {x, w, b.grad(op.out[0])}, {dx});
  if (b.needs(w)) b.contributes(grad, w);
  b.accumulate(x, dx);
}

ValueId gated_delta(Graph& g, ValueId qkv, ValueId ba, ValueId a_log, ValueId dt_bias, const GatedDeltaOp& a) {
  MXT_ASSERT(g.value(qkv).cols == 2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim);
  MXT_ASSERT(g.value(ba).cols == 2 * a.value_heads && a.value_heads % a.key_heads == 0);
  const ValueId o = g.add_value(kTokens, a.value_heads * a.value_dim, g.act_type);
  g.add_op(a, {qkv, ba, a_log, dt_bias}, {o});
  return o;
}

static void derive_delta(Backward& b, const Op& op) {
  const auto& a = std::get<GatedDeltaOp>(op.attrs);
  const ValueId qkv = op.in[0], ba = op.in[1], a_log = op.in[2], dt_bias = op.in[3];
  GatedDeltaGradOp grad{a};
  if (b.needs(a_log)) grad.a_log = b.g.value(a_log).param;
  if (b.needs(dt_bias)) grad.dt_bias = b.g.value(dt_bias).param;
  const ValueId dqkv = b.like(qkv), dba = b.like(ba);
  b.g.add_op(grad, {qkv, ba, a_log, dt_bias, b.grad(op.out[0])}, {dqkv, dba});
  b.accumulate(qkv, dqkv);
  b.accumulate(ba, dba);
}

ValueId gated_norm(Graph& g, ValueId x, ValueId gate, ValueId w, float eps) {
  MXT_ASSERT(g.value(x).cols == g.value(gate).cols && g.value(x).cols % g.value(w).cols == 0);
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  const ValueId rstd = g.add_value(kTokens, g.value(x).cols / g.value(w).cols, DType::kF32);
  g.add_op(GatedNormOp{eps}, {x, gate, w}, {y, rstd});
  return y;
}

static void derive_gated_norm(Backward& b, const Op& op) {
  const ValueId x = op.in[0], gate = op.in[1], w = op.in[2];
  const ValueId dx = b.like(x), dgate = b.like(gate);
  Op& grad = b.g.add_op(GatedNormGradOp{}, {x, gate, w, op.out[1], b.grad(op.out[0])}, {dx, dgate});
  if (b.needs(w)) b.contributes(grad, w);
  b.accumulate(x, dx);
  b.accumulate(gate, dgate);
}

ValueId sigmoid_gate(Graph& g, ValueId x, ValueId gate) {
  MXT_ASSERT(g.value(gate).cols == 1 || g.value(gate).cols == g.value(x).cols);
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  g.add_op(SigmoidGateOp{}, {x, gate}, {y});
  return y;
}

static void derive_delta_gate(Backward& b, const Op& op) {
  const ValueId x = op.in[0], gate = op.in[1], dx = b.like(x), dgate = b.like(gate);
  b.g.add_op(SigmoidGateGradOp{}, {x, gate, b.grad(op.out[0])}, {dx, dgate});
  b.accumulate(x, dx);
  b.accumulate(gate, dgate);
}

Split split_gates(Graph& g, ValueId all, int64_t heads, int64_t dim) {
  const int64_t gates = heads * dim, plain = g.value(all).cols - gates;
  MXT_ASSERT(plain >= gates);
  const Split s{g.add_value(kTokens, plain, g.act_type), g.add_value(kTokens, gates, g.act_type)};
  g.add_op(SplitGatesOp{dim}, {all}, {s.plain, s.gate});
  return s;
}

static void derive_split(Backward& b, const Op& op) {
  const auto& a = std::get<SplitGatesOp>(op.attrs);
  if (!b.needs(op.in[0])) return;
  const ValueId dplain = b.grad(op.out[0]), dgate = b.grad(op.out[1]);
  MXT_ASSERT(dplain != kNone && dgate != kNone);
  const ValueId dall = b.like(op.in[0]);
  b.g.add_op(MergeGatesOp{a.dim}, {dplain, dgate}, {dall});
  b.accumulate(op.in[0], dall);
}

namespace {

double with_state(const GatedDeltaOp& a, const PassSize& s, double products) {
  return s.tokens * products * 2.0 * static_cast<double>(a.value_heads * a.key_dim * a.value_dim);
}
double rule_products(const Graph&, const Op& op, const PassSize& s) {
  return with_state(std::get<GatedDeltaOp>(op.attrs), s, 3);
}
double rule_grad_products(const Graph&, const Op& op, const PassSize& s) {
  return with_state(std::get<GatedDeltaGradOp>(op.attrs).of, s, 7);
}

}  // namespace

const OpInfo CausalConvOp::info{.name = "causal_conv", .derive = derive_conv, .repeat = Repeat::kYes};
const OpInfo CausalConvGradOp::info{.name = "causal_conv_grad"};
const OpInfo GatedDeltaOp::info{
    .name = "gated_delta", .derive = derive_delta, .repeat = Repeat::kYes, .products = rule_products};
const OpInfo GatedDeltaGradOp::info{.name = "gated_delta_grad", .products = rule_grad_products};
const OpInfo GatedNormOp::info{.name = "gated_norm", .derive = derive_gated_norm, .repeat = Repeat::kCheap};
const OpInfo GatedNormGradOp::info{.name = "gated_norm_grad"};
const OpInfo SigmoidGateOp::info{.name = "sigmoid_gate", .derive = derive_delta_gate, .repeat = Repeat::kCheap};
const OpInfo SigmoidGateGradOp::info{.name = "sigmoid_gate_grad"};
const OpInfo SplitGatesOp::info{.name = "split_gates", .derive = derive_split, .repeat = Repeat::kYes};
const OpInfo MergeGatesOp::info{.name = "merge_gates"};

}  // namespace mxt::graph
