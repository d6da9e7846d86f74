#include <map>

#include "base/error.h"
#include "graph/passes.h"

namespace mxt::graph {

void round_inputs(Graph& g, Rounding (*of)(const void* ctx, const std::string& weight), const void* ctx) {
  MXT_ASSERT(g.forward_ops == 0);
  std::vector<Op> old = std::move(g.ops);
  g.ops.clear();
  std::map<std::pair<ValueId, Rounding>, ValueId> done;
  for (Op& op : old) {
    const bool product = std::holds_alternative<LinearOp>(op.attrs) || std::holds_alternative<ExpertLinearOp>(op.attrs);
    if (product && !g.param_of(op.in[1]).adapter) {
      const Param& w = g.param_of(op.in[1]);
      const Rounding kind = of(ctx, w.segments.at(0).name);
      for (const Segment& s : w.segments)
        if (of(ctx, s.name) != kind)
          fail_missing("{} and {} round their common input differently, which is not built in", w.segments[0].name,
                       s.name);
      if (kind != Rounding::kNone) {
        const auto [it, first] = done.try_emplace({op.in[0], kind}, kNone);
        if (first) {
          it->second = g.add_value(g.value(op.in[0]).rows, g.value(op.in[0]).cols, g.act_type);
          g.add_op(RoundOp{kind}, {op.in[0]}, {it->second});
        }
        op.in[0] = it->second;
      }
    }
    g.ops.push_back(std::move(op));
  }
}

}  // namespace mxt::graph
