#include "graph/uses.h"

namespace mxt::graph {
namespace {

// What a value's buffer is found through; kNone: it is one itself.
ValueId next(const Value& v) { return v.adjacent_to != kNone ? v.adjacent_to : v.alias_of; }

}  // namespace

Uses::Uses(const Graph& g) : maker_(g.values.size(), -1), first_(g.values.size() + 1, 0) {
  for (const Op& op : g.ops)
    for (ValueId v : op.in) ++first_[static_cast<size_t>(v) + 1];
  for (size_t v = 1; v < first_.size(); ++v) first_[v] += first_[v - 1];
  readers_.resize(first_.back());
  std::vector<size_t> at(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < g.ops.size(); ++i) {
    for (ValueId v : g.ops[i].in) readers_[at[static_cast<size_t>(v)]++] = static_cast<int32_t>(i);
    for (ValueId v : g.ops[i].out) maker_[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  }
}

std::vector<ValueId> roots(const Graph& g) {
  Buffers buffers(g);
  std::vector<ValueId> out(g.values.size());
  for (size_t v = 0; v < out.size(); ++v) out[v] = buffers.root(static_cast<ValueId>(v));
  return out;
}

Buffers::Buffers(const Graph& g) : parent_(g.values.size()), name_(g.values.size()) {
  for (size_t v = 0; v < parent_.size(); ++v) {
    const ValueId over = next(g.values[v]);
    parent_[v] = over == kNone ? static_cast<ValueId>(v) : over;
    name_[v] = static_cast<ValueId>(v);
  }
}

ValueId Buffers::find(ValueId v) {
  while (parent_[static_cast<size_t>(v)] != v) {
    ValueId& up = parent_[static_cast<size_t>(v)];
    up = parent_[static_cast<size_t>(up)];  // halves the way for the next one
    v = up;
  }
  return v;
}

void Buffers::unite(ValueId a, ValueId b) {
  const ValueId of_a = find(a), of_b = find(b);
  if (of_a != of_b) parent_[static_cast<size_t>(of_b)] = of_a;
}

}  // namespace mxt::graph
