// The output head: fused with cross-entropy for training and scoring, or plain logits for generation.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

HeadOut head(Graph& g, ValueId h, ValueId w, int64_t chunk, float softcap, bool gradient) {
  MXT_ASSERT(g.value(h).cols == g.value(w).cols);
  g.hidden = h;
  const ValueId nll = g.add_value(kTokens, 1, DType::kF32);
  std::vector<ValueId> out{nll};
  ValueId dh = kNone;
  if (gradient) {
    dh = g.add_value(kTokens, g.value(h).cols, g.act_type);
    out.push_back(dh);
  }
  g.add_op(FusedLinearCrossEntropyOp{chunk, softcap, gradient}, {h, w}, std::move(out));
  return {nll, dh};
}

// The derivative was taken in the forward pass (the loss is its last operation): dh is an output of the head.
static void derive_head(Backward& b, const Op& op) {
  const auto& a = std::get<FusedLinearCrossEntropyOp>(op.attrs);

  MXT_ASSERT(a.gradient);
  const bool adapted = a.adapter != 0;
  const ValueId trains = op.in[adapted ? 3 : 1];
  if (b.needs(trains)) {
    for (Op& o : b.g.ops)
      if (std::holds_alternative<FusedLinearCrossEntropyOp>(o.attrs)) b.contributes(o, trains);
  }
  if (adapted) b.accumulate(op.in[2], op.out[2]);
  b.accumulate(op.in[0], op.out[1]);
}

void add_root(Graph& g, ValueId v) {
  const Value x = g.value(v);
  MXT_ASSERT(x.param == kNone);
  g.roots.push_back({v, g.add_value(x.rows, x.cols, x.type, "seed")});
}

ValueId token_log_prob(Graph& g, ValueId h, ValueId w, const TokenLogProbOp& attrs) {
  MXT_ASSERT(g.value(h).cols == g.value(w).cols && attrs.scale > 0);
  g.hidden = h;
  const ValueId logp = g.add_value(kTokens, 1, DType::kF32);
  std::vector<ValueId> out{logp};
  if (attrs.entropy) out.push_back(g.add_value(kTokens, 1, DType::kF32));
  g.add_op(attrs, {h, w}, std::move(out));
  add_root(g, logp);
  return logp;
}

// No gradient flows through the entropy: it is shown, not trained.
static void derive_token_log_prob(Backward& b, const Op& op) {
  const auto a = std::get<TokenLogProbOp>(op.attrs);
  const ValueId dh = b.like(op.in[0]);
  Op& grad = b.g.add_op(TokenLogProbGradOp{a}, {op.in[0], op.in[1], b.grad(op.out[0])}, {dh});
  if (b.needs(op.in[1])) b.contributes(grad, op.in[1]);
  b.accumulate(op.in[0], dh);
}

void logits(Graph& g, ValueId h, ValueId w, float softcap) {
  g.hidden = h;
  g.add_op(LogitsOp{softcap}, {h, w}, {});
}

void mean_pool(Graph& g, ValueId h) {
  g.hidden = h;
  g.add_op(MeanPoolOp{}, {h}, {});
}

// The logits, and with a gradient that of the hidden states and of the weight.
static double head_products(const Graph& g, const Op& op, const PassSize& s) {
  const auto& a = std::get<FusedLinearCrossEntropyOp>(op.attrs);
  const Value& w = g.value(op.in[1]);
  return s.targets * 2.0 * static_cast<double>(w.rows.factor) * static_cast<double>(w.cols) *
         (1 + (a.gradient ? 1 : 0) + (op.param != kNone && a.adapter == 0 ? 1 : 0));
}

const OpInfo FusedLinearCrossEntropyOp::info{
    .name = "head", .derive = derive_head, .products = head_products, .weight = 1, .weight_use = WeightUse::kBoth};
// The logits; the gradients of hidden states and weight. Logits that are made again are not counted.
static double token_log_prob_products(const Graph& g, const Op& op, const PassSize& s) {
  const Value& w = g.value(op.in[1]);
  const bool gradient = std::holds_alternative<TokenLogProbGradOp>(op.attrs);
  return s.targets * 2.0 * static_cast<double>(w.rows.factor) * static_cast<double>(w.cols) *
         (gradient && op.param != kNone ? 2 : 1);
}

const OpInfo TokenLogProbOp::info{
    .name = "token_log_prob", .derive = derive_token_log_prob, .products = token_log_prob_products, .weight = 1};
const OpInfo TokenLogProbGradOp::info{
    .name = "token_log_prob_grad", .products = token_log_prob_products, .weight = 1, .weight_use = WeightUse::kRows};
const OpInfo LogitsOp::info{.name = "logits", .weight = 1};
const OpInfo MeanPoolOp::info{.name = "mean_pool"};

}  // namespace mxt::graph
