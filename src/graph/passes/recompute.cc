#include "base/error.h"
#include "graph/graph.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

class Recomputer {
 public:
  Recomputer(Graph& g, Recompute level) : g_(g), producer_(g.values.size(), -1), drop_(g.values.size(), false), clone_(g.values.size(), kNone) {
    for (int32_t i = 0; i < g.forward_ops; ++i)
      for (ValueId v : g.ops[static_cast<size_t>(i)].out) {
        producer_[static_cast<size_t>(v)] = i;
        const ValueId alias = g.value(v).same_as;
        if (alias != kNone) drop_[static_cast<size_t>(alias)] = true;  // overwritten in the forward pass: not there anyway
      }
    for (int32_t i = 0; i < g.forward_ops; ++i) mark(g.ops[static_cast<size_t>(i)], level);
  }

  void run() {
    std::vector<Op> backward(g_.ops.begin() + g_.forward_ops, g_.ops.end());
    g_.ops.resize(static_cast<size_t>(g_.forward_ops));
    for (Op& op : backward) {
      for (ValueId& v : op.in) {
        const ValueId now = resolve(v);
        if (now == v) continue;
        for (ValueId o : op.out)
          if (g_.value(o).same_as == v) g_.values[static_cast<size_t>(o)].same_as = now;
        v = now;
      }
      g_.ops.push_back(std::move(op));
    }
  }

 private:
  // Statistics (rstd, lse) are small and always kept; so are the residual stream and what the head makes.
  void mark(const Op& op, Recompute level) {
    auto drop = [&](ValueId v) { drop_[static_cast<size_t>(v)] = true; };
    if (std::holds_alternative<NormOp>(op.attrs) || std::holds_alternative<ActOp>(op.attrs)) drop(op.out[0]);
    if (level != Recompute::kLayer) return;
    const bool inside = std::holds_alternative<LinearOp>(op.attrs) || std::holds_alternative<LoraAddOp>(op.attrs) ||
                        std::holds_alternative<QkRopeOp>(op.attrs) || std::holds_alternative<AttentionOp>(op.attrs) ||
                        std::holds_alternative<DropoutOp>(op.attrs);
    if (inside) drop(op.out[0]);
  }

  ValueId resolve(ValueId v) {
    if (v >= static_cast<ValueId>(drop_.size()) || !drop_[static_cast<size_t>(v)]) return v;
    const int32_t at = producer_[static_cast<size_t>(v)];
    if (at < 0) return v;
    ValueId& known = clone_[static_cast<size_t>(v)];
    if (known != kNone) return known;
    Op op = g_.ops[static_cast<size_t>(at)];
    if (auto* n = std::get_if<NormOp>(&op.attrs); n && n->residual) {
      // The residual stream h is kept: the clone reads it instead of adding again.
      const ValueId h = op.out.back();
      n->residual = false;
      op.in.erase(op.in.begin() + 1);
      op.in[0] = h;
      op.out.pop_back();
    }
    for (ValueId& in : op.in) in = resolve(in);
    const Op original = g_.ops[static_cast<size_t>(at)];
    for (size_t i = 0; i < op.out.size(); ++i) {
      const Value x = g_.value(op.out[i]);
      const ValueId c = g_.add_value(x.rows, x.cols, x.type, x.name);
      if (x.same_as != kNone) {
        for (size_t k = 0; k < original.in.size(); ++k)
          if (original.in[k] == x.same_as) g_.values[static_cast<size_t>(c)].same_as = op.in[k];
      }
      if (original.out[i] == v || drop_[static_cast<size_t>(original.out[i])]) clone_[static_cast<size_t>(original.out[i])] = c;
      op.out[i] = c;
    }
    g_.ops.push_back(std::move(op));
    return clone_[static_cast<size_t>(v)];
  }

  Graph& g_;
  std::vector<int32_t> producer_;
  std::vector<bool> drop_;
  std::vector<ValueId> clone_;
};

}  // namespace

void recompute(Graph& g, Recompute level) {
  MXT_ASSERT(g.forward_ops > 0);
  if (level != Recompute::kNone) Recomputer(g, level).run();
}

std::string_view recompute_name(Recompute level) {
  static constexpr std::string_view kNames[] = {"none", "cheap", "layer"};
  return kNames[static_cast<size_t>(level)];
}

}  // namespace mxt::graph
