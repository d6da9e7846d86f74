// Mixture of experts: routing, the products of each expert over its rows, and the way back.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {
namespace {

// A router sends every token to k experts: none is dropped.
Extent routed_rows(int64_t k) { return {Dim::kTokens, k}; }

}  // namespace

Routing route(Graph& g, ValueId logits, int64_t k, bool renormalize) {
  const Value x = g.value(logits);
  MXT_ASSERT(x.rows == kTokens && k > 0 && k <= x.cols);
  Routing r;
  r.experts = x.cols;
  r.k = k;
  r.weights = g.add_value(kTokens, k, g.act_type);
  r.probabilities = g.add_value(kTokens, x.cols, DType::kF32);
  r.expert = g.add_value(kTokens, k, DType::kI32);
  r.row = g.add_value(kTokens, k, DType::kI32);
  r.slot = g.add_value(routed_rows(k), 1, DType::kI32);
  r.first = g.add_value(1, x.cols + 1, DType::kI32);
  g.add_op(RouteOp{k, renormalize}, {logits}, {r.weights, r.probabilities, r.expert, r.row, r.slot, r.first});
  return r;
}

// The choice has no gradient; what reaches the probabilities is the balance loss's row a document.
static void derive_route(Backward& b, const Op& op) {
  const auto& a = std::get<RouteOp>(op.attrs);
  const ValueId logits = op.in[0], dweights = b.grad(op.out[0]), balance = b.grad(op.out[1]);
  if (!b.needs(logits)) return;
  std::vector<ValueId> in{op.out[1], op.out[2]};
  if (dweights != kNone) in.push_back(dweights);
  if (balance != kNone) in.push_back(balance);
  const ValueId dlogits = b.like(logits);
  b.g.add_op(RouteGradOp{a, dweights != kNone, balance != kNone}, std::move(in), {dlogits});
  b.accumulate(logits, dlogits);
}

ValueId expert_gather(Graph& g, ValueId x, const Routing& r) {
  const ValueId y = g.add_value(routed_rows(r.k), g.value(x).cols, g.act_type);
  g.add_op(ExpertGatherOp{}, {x, r.slot, r.row}, {y});
  return y;
}

// dx[t] = Σ of its rows' gradients, added to what x has already.
static void derive_gather(Backward& b, const Op& op) {
  const auto& a = std::get<ExpertGatherOp>(op.attrs);
  MXT_ASSERT(!a.weighted);
  const ValueId x = op.in[0], sum = b.grad(x);
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x);
  std::vector<ValueId> in{b.grad(op.out[0]), op.in[2], op.in[1]};
  if (sum != kNone) {
    in.push_back(sum);
    b.g.values[static_cast<size_t>(dx)].alias_of = sum;
  }
  b.g.add_op(ExpertSumOp{false, sum != kNone}, std::move(in), {dx});
  b.set_grad(x, dx);
}

ValueId expert_linear(Graph& g, ValueId x, ValueId w, ValueId first, int64_t experts) {
  MXT_ASSERT(g.value(x).cols == g.value(w).cols && g.value(w).rows.factor % experts == 0);
  const ValueId y = g.add_value(g.value(x).rows, g.value(w).rows.factor / experts, g.act_type);
  g.add_op(ExpertLinearOp{experts}, {x, w, first}, {y});
  return y;
}

static void derive_expert_linear(Backward& b, const Op& op) {
  const auto& a = std::get<ExpertLinearOp>(op.attrs);
  const ValueId x = op.in[0], w = op.in[1], first = op.in[2], dy = b.grad(op.out[0]);
  if (b.needs(w)) b.contributes(b.g.add_op(ExpertLinearDwOp{a.experts}, {dy, x, first}, {}), w);
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x);
  b.g.add_op(ExpertLinearDxOp{a.experts}, {dy, w, first}, {dx});
  b.accumulate(x, dx);
}

ValueId expert_bias(Graph& g, ValueId y, const Routing& r, ValueId b) {
  MXT_ASSERT(g.value(b).cols == r.experts * g.value(y).cols);
  const ValueId out = g.add_value(g.value(y).rows, g.value(y).cols, g.act_type);
  g.values[static_cast<size_t>(out)].alias_of = y;
  g.add_op(ExpertBiasOp{r.experts}, {y, r.first, b}, {out});
  return out;
}

static void derive_expert_bias(Backward& b, const Op& op) {
  const auto& a = std::get<ExpertBiasOp>(op.attrs);
  const ValueId y = op.in[0], first = op.in[1], bias = op.in[2], dy = b.grad(op.out[0]);
  if (b.needs(bias)) b.contributes(b.g.add_op(ExpertBiasGradOp{a.experts}, {dy, first}, {}), bias);
  b.accumulate(y, dy);
}

ValueId expert_sum(Graph& g, ValueId x, const Routing& r) {
  MXT_ASSERT(g.value(x).rows == routed_rows(r.k));
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  g.add_op(ExpertSumOp{true, false}, {x, r.row, r.slot, r.weights}, {y});
  return y;
}

// y[t] = Σ_j w[t, j]·x[row]: dx[row] = w·dy[t], dw[t, j] = dy[t]·x[row].
static void derive_sum(Backward& b, const Op& op) {
  const auto& a = std::get<ExpertSumOp>(op.attrs);
  MXT_ASSERT(a.weighted && !a.add);
  const ValueId x = op.in[0], row = op.in[1], slot = op.in[2], weights = op.in[3], dy = b.grad(op.out[0]);
  if (b.needs(weights)) {
    const ValueId dw = b.g.add_value(kTokens, b.g.value(weights).cols, DType::kF32);
    b.g.add_op(ExpertDotsOp{}, {dy, x, row}, {dw});
    b.set_grad(weights, dw);
  }
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x);
  b.g.add_op(ExpertGatherOp{true}, {dy, slot, row, weights}, {dx});
  b.accumulate(x, dx);
}

ValueId expert_lora_add(Graph& g, ValueId y, ValueId z, ValueId first, int64_t experts, const std::vector<ValueId>& bs,
                        const std::vector<LoraBlock>& blocks) {
  MXT_ASSERT(bs.size() == blocks.size());
  std::vector<ValueId> in{y, z, first};
  for (size_t i = 0; i < bs.size(); ++i) {
    MXT_ASSERT(g.value(bs[i]).rows == experts * blocks[i].cols && g.value(bs[i]).cols == blocks[i].rank);
    in.push_back(bs[i]);
  }
  const ValueId out = g.add_value(g.value(y).rows, g.value(y).cols, g.act_type);
  g.values[static_cast<size_t>(out)].alias_of = y;
  g.add_op(ExpertLoraAddOp{experts, blocks}, std::move(in), {out});
  return out;
}

static void derive_expert_lora_add(Backward& b, const Op& op) {
  const auto& a = std::get<ExpertLoraAddOp>(op.attrs);
  const ValueId y = op.in[0], z = op.in[1], first = op.in[2], dy = b.grad(op.out[0]);
  for (size_t i = 0; i < a.blocks.size(); ++i)
    if (b.needs(op.in[3 + i]))
      b.contributes(b.g.add_op(ExpertLoraDbOp{a.experts, a.blocks[i]}, {dy, z, first}, {}), op.in[3 + i]);
  if (b.needs(z)) {
    const ValueId dz = b.like(z);
    std::vector<ValueId> in{dy, first};
    in.insert(in.end(), op.in.begin() + 3, op.in.end());
    b.g.add_op(ExpertLoraDzOp{a.experts, a.blocks}, std::move(in), {dz});
    b.accumulate(z, dz);
  }
  b.accumulate(y, dy);
}

void balance_loss(Graph& g, const std::vector<Routing>& layers, float coefficient) {
  MXT_ASSERT(!layers.empty());
  std::vector<ValueId> in;
  for (const Routing& r : layers) {
    MXT_ASSERT(r.experts == layers[0].experts && r.k == layers[0].k);
    in.insert(in.end(), {r.probabilities, r.expert});
  }
  constexpr Extent kRows{Dim::kBatchRows, 1};
  std::vector<ValueId> out{g.add_value(kRows, 1, DType::kF32)};
  for (int i = 0; i < 3; ++i) out.push_back(g.add_value(kRows, layers[0].experts, DType::kF32));
  g.add_op(BalanceLossOp{static_cast<int64_t>(layers.size()), layers[0].k, coefficient}, std::move(in), std::move(out));
}

// Counts have no derivative: every layer's probabilities get the same row a document, which the loss itself has made.
static void derive_balance(Backward& b, const Op& op) {
  const auto& a = std::get<BalanceLossOp>(op.attrs);
  if (a.coefficient == 0) return;
  for (size_t i = 0; i < op.in.size(); i += 2)
    if (b.needs(op.in[i])) b.set_grad(op.in[i], op.out[1]);
}

namespace {

// One product of each of a pass's routed rows with a matrix of the experts'.
double routed(const Graph& g, ValueId rows, const PassSize& s, int64_t height, int64_t width) {
  return s.tokens * static_cast<double>(g.value(rows).rows.factor) * 2.0 * static_cast<double>(height) *
         static_cast<double>(width);
}
double one_of(const Graph& g, ValueId rows, const PassSize& s, ValueId w, int64_t experts) {
  return routed(g, rows, s, g.value(w).rows.factor / experts, g.value(w).cols);
}
double linear_products(const Graph& g, const Op& op, const PassSize& s) {
  return one_of(g, op.in[0], s, op.in[1], std::get<ExpertLinearOp>(op.attrs).experts);
}
double dx_products(const Graph& g, const Op& op, const PassSize& s) {
  return one_of(g, op.in[0], s, op.in[1], std::get<ExpertLinearDxOp>(op.attrs).experts);
}
double dw_products(const Graph& g, const Op& op, const PassSize& s) {
  const Param& p = g.params[static_cast<size_t>(op.param)];
  return routed(g, op.in[0], s, p.rows / std::get<ExpertLinearDwOp>(op.attrs).experts, p.cols);
}
double blocks(const Graph& g, const Op& op, const PassSize& s, const std::vector<LoraBlock>& all) {
  double total = 0;
  for (const LoraBlock& b : all) total += routed(g, op.in[0], s, b.cols, b.rank);
  return total;
}
double add_products(const Graph& g, const Op& op, const PassSize& s) {
  return blocks(g, op, s, std::get<ExpertLoraAddOp>(op.attrs).blocks);
}
double dz_products(const Graph& g, const Op& op, const PassSize& s) {
  return blocks(g, op, s, std::get<ExpertLoraDzOp>(op.attrs).blocks);
}
double db_products(const Graph& g, const Op& op, const PassSize& s) {
  return blocks(g, op, s, {std::get<ExpertLoraDbOp>(op.attrs).block});
}

}  // namespace

const OpInfo RouteOp::info{.name = "route", .derive = derive_route};
const OpInfo RouteGradOp::info{.name = "route_grad"};
const OpInfo ExpertGatherOp::info{.name = "expert_gather", .derive = derive_gather, .repeat = Repeat::kCheap};
const OpInfo ExpertSumOp::info{.name = "expert_sum", .derive = derive_sum};
const OpInfo ExpertDotsOp::info{.name = "expert_dots"};
const OpInfo ExpertLinearOp::info{
    .name = "expert_linear", .derive = derive_expert_linear, .repeat = Repeat::kYes, .products = linear_products};
const OpInfo ExpertLinearDxOp::info{.name = "expert_linear_dx", .products = dx_products};
const OpInfo ExpertLinearDwOp::info{.name = "expert_linear_dw", .products = dw_products};
const OpInfo ExpertLoraAddOp::info{
    .name = "expert_lora_add", .derive = derive_expert_lora_add, .repeat = Repeat::kYes, .products = add_products};
const OpInfo ExpertLoraDzOp::info{.name = "expert_lora_dz", .products = dz_products};
const OpInfo ExpertLoraDbOp::info{.name = "expert_lora_db", .products = db_products};
const OpInfo ExpertBiasOp::info{.name = "expert_bias", .derive = derive_expert_bias, .repeat = Repeat::kYes};
const OpInfo ExpertBiasGradOp::info{.name = "expert_bias_grad"};
const OpInfo BalanceLossOp::info{.name = "balance_loss", .derive = derive_balance};

}  // namespace mxt::graph
