// RMSNorm and LayerNorm with the residual addition before them; RMSNorm of whole queries and keys.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

NormOut norm(Graph& g, ValueId x, ValueId residual, ValueId w, ValueId b, bool layer_norm, float eps) {
  const int64_t cols = g.value(x).cols;
  const Extent rows = g.value(x).rows;
  NormOp a{layer_norm, eps, residual != kNone, w != kNone, b != kNone};
  std::vector<ValueId> in{x};
  if (a.residual) in.push_back(residual);
  if (a.has_w) in.push_back(w);
  if (a.has_b) in.push_back(b);
  for (ValueId v : in) MXT_ASSERT(g.value(v).cols == cols);
  const ValueId y = g.add_value(rows, cols, g.act_type);
  std::vector<ValueId> out{y, g.add_value(rows, 1, DType::kF32)};
  if (layer_norm) out.push_back(g.add_value(rows, 1, DType::kF32));
  ValueId h = x;
  if (a.residual) {
    h = g.add_value(rows, cols, g.act_type);
    out.push_back(h);
  }
  g.add_op(a, std::move(in), std::move(out));
  return {h, y};
}

// The gradient that reaches h past the norm (through later residual additions) is added by the same kernel, in place.
static void derive_norm(Backward& b, const Op& op) {
  const auto& a = std::get<NormOp>(op.attrs);

  const ValueId y = op.out[0], rstd = op.out[1];
  const ValueId h = a.residual ? op.out.back() : op.in[0];
  const size_t w_at = a.residual ? 2 : 1;
  const ValueId w = a.has_w ? op.in[w_at] : kNone, bias = a.has_b ? op.in[w_at + (a.has_w ? 1 : 0)] : kNone;
  const ValueId dy = b.grad(y), dres = b.grad(h);
  ValueId dh = dres;
  if (dy != kNone) {
    NormGradOp ga{a, bias != kNone && b.needs(bias) ? b.g.value(bias).param : kNone, dres != kNone};
    std::vector<ValueId> in{h, dy, rstd};
    if (a.layer_norm) in.push_back(op.out[2]);
    if (a.has_w) in.push_back(w);
    if (ga.has_dres) in.push_back(dres);
    dh = b.like(h);
    if (ga.has_dres) b.g.values[static_cast<size_t>(dh)].alias_of = dres;
    Op& gop = b.g.add_op(ga, std::move(in), {dh});
    if (w != kNone && b.needs(w)) b.contributes(gop, w);
  }
  if (a.residual) {
    b.accumulate(op.in[0], dh);
    b.accumulate(op.in[1], dh);
  } else {
    b.set_grad(h, dh);
  }
}

ValueId qkv_norm(Graph& g, ValueId qkv, const QkvNormOp& a, ValueId q_w, ValueId k_w) {
  MXT_ASSERT(g.value(qkv).cols >= a.query + a.key && g.value(q_w).cols == a.query && g.value(k_w).cols == a.key);
  const ValueId y = g.add_value(kTokens, g.value(qkv).cols, g.act_type);
  const ValueId q_rstd = g.add_value(kTokens, 1, DType::kF32), k_rstd = g.add_value(kTokens, 1, DType::kF32);
  g.add_op(a, {qkv, q_w, k_w}, {y, q_rstd, k_rstd});
  return y;
}

static void derive_qkv_norm(Backward& b, const Op& op) {
  if (!b.needs(op.in[0])) return;
  QkvNormGradOp ga{std::get<QkvNormOp>(op.attrs)};
  if (b.needs(op.in[1])) ga.q_w = b.g.value(op.in[1]).param;
  if (b.needs(op.in[2])) ga.k_w = b.g.value(op.in[2]).param;
  const ValueId dqkv = b.like(op.in[0]);
  b.g.add_op(ga, {b.grad(op.out[0]), op.in[0], op.out[1], op.out[2], op.in[1], op.in[2]}, {dqkv});
  b.accumulate(op.in[0], dqkv);
}

const OpInfo NormOp::info{.name = "norm", .derive = derive_norm, .repeat = Repeat::kCheap};
const OpInfo NormGradOp::info{.name = "norm_grad"};
const OpInfo QkvNormOp::info{.name = "qkv_norm", .derive = derive_qkv_norm, .repeat = Repeat::kYes};
const OpInfo QkvNormGradOp::info{.name = "qkv_norm_grad"};

}  // namespace mxt::graph
