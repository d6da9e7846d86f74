// y = x wᵀ + bias, and the LoRA product that is added to it.
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId linear(Graph& g, ValueId x, ValueId w, ValueId bias) {
  MXT_ASSERT(g.value(x).cols == g.value(w).cols);
  const ValueId y = g.add_value(g.value(x).rows, g.value(w).rows.factor, g.act_type);
  std::vector<ValueId> in{x, w};
  if (bias != kNone) {
    MXT_ASSERT(g.value(bias).cols == g.value(w).rows);
    in.push_back(bias);
  }
  g.add_op(LinearOp{}, std::move(in), {y});
  return y;
}

// dx = dy w; dw = dyᵀ x; db = Σ_t dy. A dx that meets an earlier gradient of x is accumulated by the product itself.
static void derive_linear(Backward& b, const Op& op) {
  const ValueId x = op.in[0], w = op.in[1], dy = b.grad(op.out[0]);
  if (b.needs(w)) b.contributes(b.g.add_op(LinearDwOp{}, {dy, x}, {}), w);
  if (op.in.size() > 2 && b.needs(op.in[2])) b.contributes(b.g.add_op(BiasGradOp{}, {dy}, {}), op.in[2]);
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x);
  const ValueId sum = b.grad(x);
  std::vector<ValueId> in{dy, w};
  if (sum != kNone) {
    in.push_back(sum);
    b.g.values[static_cast<size_t>(dx)].alias_of = sum;
  }
  b.g.add_op(LinearDxOp{}, std::move(in), {dx});
  b.set_grad(x, dx);
}

ValueId lora_add(Graph& g, ValueId y, ValueId z, const std::vector<ValueId>& bs, const std::vector<LoraBlock>& blocks) {
  MXT_ASSERT(bs.size() == blocks.size());
  std::vector<ValueId> in{y, z};
  for (size_t i = 0; i < bs.size(); ++i) {
    MXT_ASSERT(g.value(bs[i]).rows == blocks[i].cols && g.value(bs[i]).cols == blocks[i].rank);
    MXT_ASSERT(blocks[i].col + blocks[i].cols <= g.value(y).cols &&
               blocks[i].z_col + blocks[i].rank <= g.value(z).cols);
    in.push_back(bs[i]);
  }
  const ValueId out = g.add_value(g.value(y).rows, g.value(y).cols, g.act_type);
  g.values[static_cast<size_t>(out)].alias_of = y;
  g.add_op(LoraAddOp{blocks}, std::move(in), {out});
  return out;
}

// With y' = y + s z Bᵀ per block: dy = dy', dz = s dy' B, dB = s dy'ᵀ z.
static void derive_loraadd(Backward& b, const Op& op) {
  const auto& a = std::get<LoraAddOp>(op.attrs);

  const ValueId y = op.in[0], z = op.in[1], dy = b.grad(op.out[0]);
  for (size_t i = 0; i < a.blocks.size(); ++i)
    if (b.needs(op.in[2 + i])) b.contributes(b.g.add_op(LoraDbOp{a.blocks[i]}, {dy, z}, {}), op.in[2 + i]);
  if (b.needs(z)) {
    const ValueId dz = b.like(z);
    std::vector<ValueId> in{dy};
    in.insert(in.end(), op.in.begin() + 2, op.in.end());
    b.g.add_op(LoraDzOp{a.blocks, b.g.value(z).cols}, std::move(in), {dz});
    b.accumulate(z, dz);
  }
  b.accumulate(y, dy);
}

namespace {

double product(const Graph& g, ValueId w) {
  return 2.0 * static_cast<double>(g.value(w).rows.factor) * static_cast<double>(g.value(w).cols);
}
double thin(int64_t rank, int64_t width) { return 2.0 * static_cast<double>(rank) * static_cast<double>(width); }
double thin(const LoraBlock& b) { return thin(b.rank, b.cols); }

double linear_products(const Graph& g, const Op& op, const PassSize& s) {
  return s.tokens * (product(g, op.in[1]) + thin(std::get<LinearOp>(op.attrs).joined, g.value(op.in[1]).rows.factor));
}
double dx_products(const Graph& g, const Op& op, const PassSize& s) {
  return s.tokens * (product(g, op.in[1]) + thin(std::get<LinearDxOp>(op.attrs).joined, g.value(op.in[1]).cols));
}
double dw_products(const Graph& g, const Op& op, const PassSize& s) {
  const Param& p = g.params[static_cast<size_t>(op.param)];
  return s.tokens * thin(p.rows, p.cols);
}
double held_products(const Graph& g, const Op& op, const PassSize& s) { return s.tokens * product(g, op.in[2]); }
double add_products(const Graph&, const Op& op, const PassSize& s) {
  double total = 0;
  for (const LoraBlock& b : std::get<LoraAddOp>(op.attrs).blocks) total += s.tokens * thin(b);
  return total;
}
double dz_products(const Graph&, const Op& op, const PassSize& s) {
  const auto& a = std::get<LoraDzOp>(op.attrs);
  double total = 0;
  for (const LoraBlock& b : a.blocks) total += s.tokens * thin(b) * (a.b.empty() ? 1 : 2);
  return total;
}
double db_products(const Graph&, const Op& op, const PassSize& s) {
  return s.tokens * thin(std::get<LoraDbOp>(op.attrs).block);
}

}  // namespace

const OpInfo LinearOp::info{
    .name = "linear", .derive = derive_linear, .repeat = Repeat::kYes, .products = linear_products, .weight = 1};
const OpInfo LinearDxOp::info{
    .name = "linear_dx", .products = dx_products, .weight = 1, .weight_use = WeightUse::kRows};
const OpInfo LinearDwOp::info{.name = "linear_dw", .products = dw_products};
const OpInfo BiasGradOp::info{.name = "bias_grad"};
const OpInfo LoraAddOp::info{
    .name = "lora_add", .derive = derive_loraadd, .repeat = Repeat::kYes, .products = add_products};
const OpInfo LoraDzOp::info{.name = "lora_dz", .products = dz_products};
const OpInfo LoraDbOp::info{.name = "lora_db", .products = db_products};
const OpInfo LoraJoinOp::info{.name = "lora_join"};
const OpInfo RoundOp::info{.name = "round"};
const OpInfo QuantizeOp::info{.name = "quantize"};
const OpInfo RowwiseFp8LinearOp::info{.name = "rowwise_fp8_linear", .repeat = Repeat::kYes, .products = held_products};
const OpInfo RowwiseFp8LinearDwOp::info{.name = "rowwise_fp8_linear_dw", .products = dw_products};
const OpInfo RowwiseFp8TransposeOp::info{.name = "rowwise_fp8_transpose"};
const OpInfo Fp8LinearDwOp::info{.name = "fp8_linear_dw", .products = dw_products};

}  // namespace mxt::graph
