// Residual streams mixed by learned scalars, and gated additions (nanochat).
#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

ValueId mix(Graph& g, ValueId x, ValueId z, const MixOp& m, ValueId b, ValueId a) {
  MXT_ASSERT(g.value(x).cols == g.value(z).cols && m.b >= 0 && m.b < g.value(b).cols);
  MXT_ASSERT((a == kNone) == (m.a < 0) && (a == kNone || m.a < g.value(a).cols));
  std::vector<ValueId> in{x, z, b};
  if (a != kNone) in.push_back(a);
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  g.add_op(m, std::move(in), {y});
  return y;
}

// dx = a·dy, dz = sign·b·dy, da = Σ dy·x, db = sign·Σ dy·z. Without a, dy itself is dx. z is read by many: a dz that
// meets an earlier gradient of it is added at once.
static void derive_mix(Backward& b, const Op& op) {
  if (!b.needs(op.out[0])) return;
  const auto& m = std::get<MixOp>(op.attrs);
  const ValueId dy = b.grad(op.out[0]);
  MixGradOp gm{m};
  std::vector<ValueId> in{dy};
  in.insert(in.end(), op.in.begin(), op.in.end());
  const bool has_a = op.in.size() > 3;
  if (has_a && b.needs(op.in[3])) gm.a = b.g.value(op.in[3]).param;
  std::vector<ValueId> out{b.like(op.in[1])};
  const ValueId sum = b.grad(op.in[1]);
  if (sum != kNone) {
    in.push_back(sum);
    b.g.values[static_cast<size_t>(out[0])].alias_of = sum;
  }
  if (has_a) out.push_back(b.like(op.in[0]));
  Op& gop = b.g.add_op(gm, std::move(in), out);
  MXT_ASSERT(!has_a || b.needs(op.in[3]) == b.needs(op.in[2]));  // both train or neither
  if (b.needs(op.in[2])) b.contributes(gop, op.in[2]);
  if (b.needs(op.in[1])) b.set_grad(op.in[1], out[0]);
  b.accumulate(op.in[0], has_a ? out[1] : dy);
}

ValueId gate(Graph& g, ValueId x, ValueId s, ValueId w, ValueId u, const GateOp& a, ValueId lambda) {
  MXT_ASSERT(g.value(w).rows == a.groups && g.value(w).cols <= g.value(s).cols && g.value(u).cols % a.groups == 0);
  MXT_ASSERT(a.col + g.value(u).cols <= g.value(x).cols);
  std::vector<ValueId> in{x, s, w, u};
  if (lambda != kNone) in.push_back(lambda);
  const ValueId y = g.add_value(kTokens, g.value(x).cols, g.act_type);
  g.add_op(a, std::move(in), {y});
  return y;
}

static void derive_gate(Backward& b, const Op& op) {
  if (!b.needs(op.out[0])) return;
  const auto& a = std::get<GateOp>(op.attrs);
  const ValueId dy = b.grad(op.out[0]);
  GateGradOp ga{a};
  std::vector<ValueId> in{dy};
  in.insert(in.end(), op.in.begin() + 1, op.in.end());
  if (op.in.size() > 4 && b.needs(op.in[4])) ga.lambda = b.g.value(op.in[4]).param;
  const ValueId ds = b.like(op.in[1]), du = b.like(op.in[3]);
  Op& gop = b.g.add_op(ga, std::move(in), {ds, du});
  if (b.needs(op.in[2])) b.contributes(gop, op.in[2]);
  b.accumulate(op.in[1], ds);
  b.accumulate(op.in[3], du);
  b.accumulate(op.in[0], dy);
}

const OpInfo MixOp::info{.name = "mix", .derive = derive_mix};
const OpInfo MixGradOp::info{.name = "mix_grad"};
const OpInfo GateOp::info{.name = "gate", .derive = derive_gate, .overwrites = 1};
const OpInfo GateGradOp::info{.name = "gate_grad"};

}  // namespace mxt::graph
