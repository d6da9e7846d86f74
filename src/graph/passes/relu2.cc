#include <utility>
#include <vector>

#include "graph/passes.h"
#include "graph/uses.h"

namespace mxt::graph {
namespace {

// The only operation that reads v.
Op* only_reader(Graph& g, const Uses& uses, ValueId v) {
  return uses.readers(v).size() == 1 ? &g.ops[static_cast<size_t>(uses.readers(v)[0])] : nullptr;
}
Op* maker(Graph& g, const Uses& uses, ValueId v) {
  return uses.maker(v) < 0 ? nullptr : &g.ops[static_cast<size_t>(uses.maker(v))];
}

// A product of two operands and nothing else.
template <typename T>
T* plain(const Graph& g, Op* op) {
  T* a = op != nullptr ? std::get_if<T>(&op->attrs) : nullptr;
  if (a == nullptr || op->in.size() != 2 || a->joined > 0 || a->fp8 || a->row_absmax) return nullptr;
  const Value& w = g.value(op->in[1]);
  if (w.param == kNone || w.rows.factor % 8 != 0 || w.cols % 8 != 0) return nullptr;
  const Param& p = g.params[static_cast<size_t>(w.param)];
  return p.held == Storage::kPlain && p.joined == 0 ? a : nullptr;
}

void put_result(Graph& g, Op& op, ValueId v) {
  op.out[0] = v;
  g.values[static_cast<size_t>(v)].alias_of = kNone;
}

}  // namespace

void join_relu2(Graph& g) {
  if (g.act_type != DType::kBF16) return;
  const Uses uses(g);
  std::vector<bool> gone(g.ops.size());
  const auto drop = [&](const Op& op) { gone[static_cast<size_t>(&op - g.ops.data())] = true; };
  for (Op& grad : g.ops) {
    const auto* a = std::get_if<ActGradOp>(&grad.attrs);
    if (a == nullptr || a->kind != ActKind::kRelu2 || a->held) continue;
    const ValueId h = grad.in[0], dy = grad.in[1];
    Op *product = maker(g, uses, h), *back = maker(g, uses, dy);
    auto* forward = plain<LinearOp>(g, product);
    auto* dx = plain<LinearDxOp>(g, back);
    if (forward == nullptr || dx == nullptr || only_reader(g, uses, dy) != &grad || uses.readers(h).size() != 2)
      continue;
    Op& act = g.ops[static_cast<size_t>(uses.readers(h)[0])];  // the other reader: made again, it would be a third
    if (!std::holds_alternative<ActOp>(act.attrs) || std::get<ActOp>(act.attrs).held) continue;
    forward->relu2 = dx->relu2 = true;
    put_result(g, *product, act.out[0]);
    put_result(g, *back, grad.out[0]);
    back->in.push_back(act.out[0]);
    drop(act), drop(grad);
  }
  std::vector<Op> left;
  int32_t forward_ops = 0;
  for (size_t i = 0; i < g.ops.size(); ++i) {
    if (gone[i]) continue;
    left.push_back(std::move(g.ops[i]));
    if (static_cast<int32_t>(i) < g.forward_ops) ++forward_ops;
  }
  g.ops = std::move(left);
  g.forward_ops = forward_ops;
}

}  // namespace mxt::graph
