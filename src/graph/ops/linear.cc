// y = x wᵀ + bias, and the LoRA product that is added to it.
#include "base/error.h"
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
void derive_op(Backward& b, const Op& op, const LinearOp&) {
  const ValueId x = op.in[0], w = op.in[1], dy = b.grad(op.out[0]);
  if (b.needs(w)) b.contributes(b.g.add_op(LinearDwOp{}, {dy, x}, {}), w);
  if (op.in.size() > 2 && b.needs(op.in[2])) b.contributes(b.g.add_op(BiasGradOp{}, {dy}, {}), op.in[2]);
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x);
  const ValueId sum = b.grad(x);
  std::vector<ValueId> in{dy, w};
  if (sum != kNone) {
    in.push_back(sum);
    b.g.values[static_cast<size_t>(dx)].same_as = sum;
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
  g.values[static_cast<size_t>(out)].same_as = y;
  g.add_op(LoraAddOp{blocks}, std::move(in), {out});
  return out;
}

// With y' = y + s z Bᵀ per block: dy = dy', dz = s dy' B, dB = s dy'ᵀ z.
void derive_op(Backward& b, const Op& op, const LoraAddOp& a) {
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

}  // namespace mxt::graph
