#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/op_info.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

// What can be made again: first results of such operations. Statistics (rstd, lse) are small and always kept; so are
// the residual stream and what the head makes.
bool cheap(const Op& op) { return info(op).repeat == Repeat::kCheap; }
bool repeatable(const Op& op) { return info(op).repeat != Repeat::kNo; }

// Operation that makes each value of the forward pass, and which values are overwritten there in place: these are gone
// in any case.
struct Forward {
  std::vector<int32_t> producer;
  std::vector<bool> gone;
  explicit Forward(const Graph& g) : producer(g.values.size(), -1), gone(g.values.size(), false) {
    for (int32_t i = 0; i < g.forward_ops; ++i)
      for (ValueId v : g.ops[static_cast<size_t>(i)].out) {
        producer[static_cast<size_t>(v)] = i;
        if (g.value(v).alias_of != kNone) gone[static_cast<size_t>(g.value(v).alias_of)] = true;
      }
  }
};

constexpr double kOpsPerByte = 50;  // between a processor's (about 15) and an accelerator's (about 200)

double token_bytes(const Graph& g, ValueId v) {
  const Value& x = g.value(v);
  if (x.rows.dim != Dim::kTokens) return 0;
  return static_cast<double>(x.rows.factor * (x.cols + x.pad)) * static_cast<double>(size_of(x.type));
}

double own_cost(const Graph& g, const Op& op, int64_t document) {
  double moved = 0;
  for (ValueId v : op.in) moved += token_bytes(g, v);
  for (ValueId v : op.out) moved += token_bytes(g, v);
  const PassSize one{1, static_cast<double>(document), 1};
  return std::max(kOpsPerByte * moved, info(op).products ? info(op).products(g, op, one) : 0);
}

class Recomputer {
 public:
  Recomputer(Graph& g, Recompute what, int64_t document) : g_(g), clone_(g.values.size(), kNone) {
    Forward forward(g);
    producer_ = std::move(forward.producer);
    drop_ = std::move(forward.gone);
    if (what == Recompute::kCheap || what == Recompute::kLayer) {
      for (int32_t i = 0; i < g.forward_ops; ++i) {
        const Op& op = g.ops[static_cast<size_t>(i)];
        if (what == Recompute::kCheap ? cheap(op) : repeatable(op)) drop_[static_cast<size_t>(op.out[0])] = true;
      }
      return;
    }
    const auto order = recompute_order(g, document);
    for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < what.tensors; ++i)
      drop_[static_cast<size_t>(order[i].value)] = true;
  }

  void run() {
    std::vector<Op> backward(g_.ops.begin() + g_.forward_ops, g_.ops.end());
    g_.ops.resize(static_cast<size_t>(g_.forward_ops));
    for (Op& op : backward) {
      for (ValueId& v : op.in) {
        const ValueId now = resolve(v);
        if (now == v) continue;
        for (ValueId o : op.out)
          if (g_.value(o).alias_of == v) g_.values[static_cast<size_t>(o)].alias_of = now;
        v = now;
      }
      g_.ops.push_back(std::move(op));
    }
  }

 private:
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
      if (x.alias_of != kNone) {
        for (size_t k = 0; k < original.in.size(); ++k)
          if (original.in[k] == x.alias_of) g_.values[static_cast<size_t>(c)].alias_of = op.in[k];
      }
      if (original.out[i] == v || drop_[static_cast<size_t>(original.out[i])])
        clone_[static_cast<size_t>(original.out[i])] = c;
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

std::vector<Recomputable> recompute_order(const Graph& g, int64_t document) {
  const Forward forward(g);
  std::vector<bool> read(g.values.size(), false);
  for (size_t i = static_cast<size_t>(g.forward_ops); i < g.ops.size(); ++i)
    for (ValueId v : g.ops[i].in) read[static_cast<size_t>(v)] = true;
  std::vector<Recomputable> out;
  for (int32_t i = 0; i < g.forward_ops; ++i) {
    const Op& op = g.ops[static_cast<size_t>(i)];
    if (op.out.empty()) continue;  // joining of an adapter
    const ValueId v = op.out[0];
    if (!repeatable(op) || !read[static_cast<size_t>(v)] || forward.gone[static_cast<size_t>(v)]) continue;
    // With it come the operations whose results were overwritten on the way to it.
    double cost = 0;
    std::vector<int32_t> todo{i};
    while (!todo.empty()) {
      const Op& step = g.ops[static_cast<size_t>(todo.back())];
      todo.pop_back();
      cost += own_cost(g, step, document);
      for (ValueId in : step.in)
        if (forward.gone[static_cast<size_t>(in)] && forward.producer[static_cast<size_t>(in)] >= 0)
          todo.push_back(forward.producer[static_cast<size_t>(in)]);
    }
    out.push_back({v, cost, token_bytes(g, v)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Recomputable& a, const Recomputable& b) { return a.cost * b.bytes < b.cost * a.bytes; });
  return out;
}

void recompute(Graph& g, Recompute what, int64_t document) {
  MXT_ASSERT(g.forward_ops > 0);
  if (what != Recompute::kNone) Recomputer(g, what, document > 0 ? document : g.max_positions).run();
}

std::string recompute_name(Recompute what) {
  if (what == Recompute::kNone) return "none";
  if (what == Recompute::kCheap) return "cheap";
  if (what == Recompute::kLayer) return "layer";
  return std::to_string(what.tensors);
}

bool recompute_from_name(const std::string& name, Recompute* what) {
  for (const Recompute r : {Recompute::kNone, Recompute::kCheap, Recompute::kLayer})
    if (recompute_name(r) == name) return *what = r, true;
  int64_t n = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), n);
  if (error != std::errc() || end != name.data() + name.size() || n < 1 || n == INT64_MAX) return false;
  *what = {n};
  return true;
}

}  // namespace mxt::graph
