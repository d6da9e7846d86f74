#include "base/error.h"
#include "graph/op_info.h"
#include "graph/ops.h"

namespace mxt::graph {

Backward::Backward(Graph& graph)
    : g(graph), grads_(g.values.size(), kNone), needs_(g.values.size(), false), touched_(g.params.size(), false) {
  for (const Param& p : g.params) needs_[static_cast<size_t>(p.value)] = p.trainable;
  for (const Op& op : g.ops) {
    bool any = false;
    for (ValueId v : op.in) any = any || needs_[static_cast<size_t>(v)];
    for (ValueId v : op.out) needs_[static_cast<size_t>(v)] = any;
  }
}

void Backward::set_grad(ValueId v, ValueId dv) { grads_[static_cast<size_t>(v)] = dv; }

void Backward::accumulate(ValueId v, ValueId dv) {
  if (!needs(v)) return;
  const ValueId old = grad(v);
  if (old == kNone) {
    set_grad(v, dv);
    return;
  }
  const ValueId sum = like(v);
  g.add_op(AddOp{}, {old, dv}, {sum});
  set_grad(v, sum);
}

ValueId Backward::like(ValueId v, std::string name) {
  const Value x = g.value(v);
  return g.add_value(x.rows, x.cols, x.type, std::move(name));
}

void Backward::contributes(Op& op, ValueId param_value) {
  const ParamId p = g.value(param_value).param;
  op.param = p;
  op.first_grad = !touched_[static_cast<size_t>(p)];
  touched_[static_cast<size_t>(p)] = true;
}

void derive(Backward& b, size_t index) {
  const Op op = b.g.ops[index];
  MXT_ASSERT(info(op).derive != nullptr);
  info(op).derive(b, op);
}

int64_t differentiate(Graph& g) {
  MXT_ASSERT(!g.ops.empty() &&
             (!g.roots.empty() || std::holds_alternative<FusedLinearCrossEntropyOp>(g.ops.back().attrs)));
  g.forward_ops = static_cast<int32_t>(g.ops.size());
  Backward b(g);
  for (const Root& r : g.roots)
    if (b.needs(r.value)) b.set_grad(r.value, r.seed);
  for (size_t i = g.ops.size(); i-- > 0;) {
    const Op& op = g.ops[i];
    bool wanted =
        std::holds_alternative<FusedLinearCrossEntropyOp>(op.attrs) || std::holds_alternative<BalanceLossOp>(op.attrs);
    for (ValueId v : op.out) wanted = wanted || b.grad(v) != kNone;
    if (wanted) derive(b, i);
  }
  return static_cast<int64_t>(g.ops.size()) - g.forward_ops;
}

}  // namespace mxt::graph
