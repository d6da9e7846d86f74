// Rotary embedding with optional QK-norm, and attention inside packed documents (or pictures).
#include <algorithm>

#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId qk_norm_rope(Graph& g, ValueId qkv, const QkNormRopeOp& attrs, ValueId q_w, ValueId k_w) {
  QkNormRopeOp a = attrs;
  a.norm = q_w != kNone;
  MXT_ASSERT(g.value(qkv).cols == (a.heads + 2 * a.kv_heads) * a.head_dim);
  std::vector<ValueId> in{qkv}, out{g.add_value(g.value(qkv).rows, g.value(qkv).cols, g.act_type)};
  if (a.norm) {
    in.push_back(q_w);
    in.push_back(k_w);
    out.push_back(g.add_value(g.value(qkv).rows, a.heads + a.kv_heads, DType::kF32));
  } else {
    g.values[static_cast<size_t>(out[0])].alias_of = qkv;  // a rotation: its backward needs no input
  }
  const ValueId y = out[0];
  g.add_op(a, std::move(in), std::move(out));
  return y;
}

static void derive_qkrope(Backward& b, const Op& op) {
  const auto& a = std::get<QkNormRopeOp>(op.attrs);

  const ValueId dout = b.grad(op.out[0]);
  if (!b.needs(op.in[0])) return;
  const ValueId dqkv = b.like(op.in[0]);
  b.g.values[static_cast<size_t>(dqkv)].alias_of = dout;
  std::vector<ValueId> in{dout};
  QkNormRopeGradOp ga{a};
  if (a.norm) {
    in.insert(in.end(), {op.in[0], op.out[1], op.in[1], op.in[2]});
    if (b.needs(op.in[1])) {
      ga.q_w = b.g.value(op.in[1]).param;
      ga.k_w = b.g.value(op.in[2]).param;
    }
  }
  b.g.add_op(ga, std::move(in), {dqkv});
  b.accumulate(op.in[0], dqkv);
}

ValueId attention(Graph& g, ValueId qkv, const AttentionOp& a, ValueId sinks) {
  MXT_ASSERT(a.causal || (a.window == 0 && a.dropout == 0));
  MXT_ASSERT(g.value(qkv).cols == (a.heads + 2 * a.kv_heads) * a.head_dim && a.heads % a.kv_heads == 0);
  const ValueId o = g.add_value(g.value(qkv).rows, a.heads * a.head_dim, g.act_type);
  const ValueId lse = g.add_value(g.value(qkv).rows, a.heads, DType::kF32);
  std::vector<ValueId> in{qkv};
  if (sinks != kNone) {
    MXT_ASSERT(a.causal && a.dropout == 0 && g.value(sinks).cols == a.heads && g.value(sinks).type == DType::kF32);
    in.push_back(sinks);
  }
  g.add_op(a, std::move(in), {o, lse});
  return o;
}

static void derive_attention(Backward& b, const Op& op) {
  const auto& a = std::get<AttentionOp>(op.attrs);

  const bool sinks = op.in.size() > 1, train_sinks = sinks && b.needs(op.in[1]);
  if (!b.needs(op.in[0]) && !train_sinks) return;
  const ValueId dqkv = b.like(op.in[0]);
  std::vector<ValueId> in{op.in[0], op.out[0], op.out[1], b.grad(op.out[0])};
  if (sinks) in.push_back(op.in[1]);
  const ValueId qkv = op.in[0], w = sinks ? op.in[1] : kNone;
  Op& grad = b.g.add_op(AttentionGradOp{a}, std::move(in), {dqkv});
  if (train_sinks) b.contributes(grad, w);
  if (b.needs(qkv)) b.accumulate(qkv, dqkv);
}

namespace {

// Causal: half of the square.
double products(const AttentionOp& a, const PassSize& s, double count) {
  const double half = s.document / 2;
  const double seen = !a.causal ? s.document : a.window > 0 ? std::min(half, static_cast<double>(a.window)) : half;
  return s.tokens * count * 2.0 * seen * static_cast<double>(a.heads * a.head_dim);
}
double forward_products(const Graph&, const Op& op, const PassSize& s) {
  return products(std::get<AttentionOp>(op.attrs), s, 2);
}
double backward_products(const Graph&, const Op& op, const PassSize& s) {
  return products(std::get<AttentionGradOp>(op.attrs).of, s, 5);
}

}  // namespace

const OpInfo QkNormRopeOp::info{.name = "qk_norm_rope", .derive = derive_qkrope, .repeat = Repeat::kYes};
const OpInfo QkNormRopeGradOp::info{.name = "qk_norm_rope_grad"};
const OpInfo AttentionOp::info{
    .name = "attention", .derive = derive_attention, .repeat = Repeat::kYes, .products = forward_products};
const OpInfo AttentionGradOp::info{.name = "attention_grad", .products = backward_products};

}  // namespace mxt::graph
