#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId act(Graph& g, ValueId x, ActKind kind) {
  const bool gated = kind == ActKind::kSwiGlu || kind == ActKind::kGeGlu;
  const int64_t cols = gated ? g.value(x).cols / 2 : g.value(x).cols;
  const ValueId y = g.add_value(g.value(x).rows, cols, g.act_type);
  g.add_op(ActOp{kind}, {x}, {y});
  return y;
}

static void derive_act(Backward& b, const Op& op) {
  const auto& a = std::get<ActOp>(op.attrs);

  const ValueId dx = b.like(op.in[0]);
  b.g.values[static_cast<size_t>(dx)].alias_of = op.in[0];  // nothing reads x after its derivative
  b.g.add_op(ActGradOp{a.kind}, {op.in[0], b.grad(op.out[0])}, {dx});
  b.accumulate(op.in[0], dx);
}

ValueId clamped_glu(Graph& g, ValueId x, const ClampedGluOp& attrs) {
  const ValueId y = g.add_value(g.value(x).rows, g.value(x).cols / 2, g.act_type);
  g.add_op(attrs, {x}, {y});
  return y;
}

static void derive_clamped_glu(Backward& b, const Op& op) {
  const auto& a = std::get<ClampedGluOp>(op.attrs);
  const ValueId x = op.in[0], dx = b.like(x);
  b.g.values[static_cast<size_t>(dx)].alias_of = x;  // nothing reads x after its derivative
  b.g.add_op(ClampedGluGradOp{a}, {x, b.grad(op.out[0])}, {dx});
  b.accumulate(x, dx);
}

ValueId add(Graph& g, ValueId a, ValueId b) {
  MXT_ASSERT(g.value(a).cols == g.value(b).cols && g.value(a).rows == g.value(b).rows);
  const ValueId y = g.add_value(g.value(a).rows, g.value(a).cols, g.act_type);
  g.add_op(AddOp{}, {a, b}, {y});
  return y;
}

static void derive_add(Backward& b, const Op& op) {
  const ValueId dy = b.grad(op.out[0]);
  b.accumulate(op.in[0], dy);
  b.accumulate(op.in[1], dy);
}

ValueId scale(Graph& g, ValueId x, float by) {
  const ValueId y = g.add_value(g.value(x).rows, g.value(x).cols, g.act_type);
  g.add_op(ScaleOp{by}, {x}, {y});
  return y;
}

static void derive_scale(Backward& b, const Op& op) {
  if (!b.needs(op.in[0])) return;
  const auto& a = std::get<ScaleOp>(op.attrs);
  const ValueId dx = b.like(op.in[0]);
  b.g.add_op(a, {b.grad(op.out[0])}, {dx});
  b.accumulate(op.in[0], dx);
}

ValueId dropout(Graph& g, ValueId x, float p) {
  if (p <= 0) return x;
  const ValueId y = g.add_value(g.value(x).rows, g.value(x).cols, g.act_type);
  g.add_op(DropoutOp{p, g.dropouts++}, {x}, {y});
  return y;
}

// The mask is a function of (seed, step, id): the same operation on dy.
static void derive_dropout(Backward& b, const Op& op) {
  const auto& a = std::get<DropoutOp>(op.attrs);

  const ValueId dx = b.like(op.in[0]);
  b.g.add_op(a, {b.grad(op.out[0])}, {dx});
  b.accumulate(op.in[0], dx);
}

const OpInfo ActOp::info{.name = "act", .derive = derive_act, .repeat = Repeat::kCheap};
const OpInfo ActGradOp::info{.name = "act_grad"};
const OpInfo ClampedGluOp::info{.name = "clamped_glu", .derive = derive_clamped_glu, .repeat = Repeat::kCheap};
const OpInfo ClampedGluGradOp::info{.name = "clamped_glu_grad"};
const OpInfo AddOp::info{.name = "add", .derive = derive_add, .overwrites = 2};
const OpInfo ScaleOp::info{.name = "scale", .derive = derive_scale};
const OpInfo DropoutOp::info{.name = "dropout", .derive = derive_dropout, .repeat = Repeat::kYes, .overwrites = 1};

}  // namespace mxt::graph
