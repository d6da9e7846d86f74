#include "graph/memory.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace mxt::graph {
namespace {

constexpr int64_t kAlign = 64;  // a cache line, and the widest vector

struct Buffer {
  ValueId root;
  int64_t bytes;
  int32_t first, last;
  int64_t offset = -1;
};

void check_in_place(const Graph& g) {
  // position of the last read of each value
  std::vector<int32_t> last(g.values.size(), -1);
  for (size_t i = 0; i < g.ops.size(); ++i)
    for (ValueId v : g.ops[i].in) last[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  for (size_t i = 0; i < g.ops.size(); ++i)
    for (ValueId v : g.ops[i].out)
      for (ValueId a = g.value(v).same_as; a != kNone; a = g.value(a).same_as)
        MXT_ASSERT(last[static_cast<size_t>(a)] <= static_cast<int32_t>(i));
}

// Places buffers one after another in the given order, each at the lowest offset where nothing that is alive at the same
// time lies.
int64_t place(std::vector<Buffer>& buffers, const std::vector<size_t>& order) {
  std::vector<size_t> placed;  // sorted by offset
  int64_t top = 0;
  for (size_t i : order) {
    Buffer& b = buffers[i];
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (size_t j : placed) {
      const Buffer& o = buffers[j];
      if (o.last < b.first || b.last < o.first) continue;
      if (o.offset - at >= b.bytes && o.offset - at < best_gap) {  // best fit among the holes
        best = at;
        best_gap = o.offset - at;
      }
      at = std::max(at, o.offset + o.bytes);
    }
    b.offset = best >= 0 ? best : at;
    top = std::max(top, b.offset + b.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i, [&](size_t x, size_t y) { return buffers[x].offset < buffers[y].offset; }), i);
  }
  return top;
}

}  // namespace

int64_t value_bytes(const Graph& g, ValueId v, int64_t tokens) {
  const Value& x = g.value(v);
  const int64_t n = (x.rows == kTokens ? tokens : x.rows) * (x.cols + x.pad) * static_cast<int64_t>(size_of(x.type));
  return (n + kAlign - 1) / kAlign * kAlign;
}

MemoryPlan plan_memory(const Graph& g, int64_t tokens, const std::vector<ValueId>& keep) {
  check_in_place(g);
  MemoryPlan plan;
  plan.offset.assign(g.values.size(), -1);
  std::vector<int32_t> index(g.values.size(), -1);
  std::vector<Buffer> buffers;
  const int32_t end = static_cast<int32_t>(g.ops.size());
  auto touch = [&](ValueId v, int32_t at) {
    const ValueId r = g.root(v);
    if (g.value(r).param != kNone) return;
    int32_t& i = index[static_cast<size_t>(r)];
    if (i < 0) {
      i = static_cast<int32_t>(buffers.size());
      buffers.push_back({r, value_bytes(g, r, tokens), at, at});
    }
    buffers[static_cast<size_t>(i)].last = std::max(buffers[static_cast<size_t>(i)].last, at);
  };
  for (int32_t i = 0; i < end; ++i) {
    for (ValueId v : g.ops[static_cast<size_t>(i)].in) touch(v, i);
    for (ValueId v : g.ops[static_cast<size_t>(i)].out) touch(v, i);
  }
  for (ValueId v : keep) touch(v, end);

  std::vector<int64_t> delta(static_cast<size_t>(end) + 2, 0);
  for (const Buffer& b : buffers) {
    delta[static_cast<size_t>(b.first)] += b.bytes;
    delta[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  int64_t live = 0;
  for (int64_t d : delta) plan.lower_bound = std::max(plan.lower_bound, live += d);
  for (const Buffer& b : buffers)
    if (b.first < g.forward_ops && b.last >= g.forward_ops) plan.bytes_at_peak_for_backward += b.bytes;

  // Packing intervals is NP-hard; the orders below each win on some graphs, so the best of them is taken.
  auto size_first = [&](size_t a, size_t b) { return std::tuple(-buffers[a].bytes, buffers[a].first, a) < std::tuple(-buffers[b].bytes, buffers[b].first, b); };
  auto life_first = [&](size_t a, size_t b) {
    const int32_t la = buffers[a].last - buffers[a].first, lb = buffers[b].last - buffers[b].first;
    return std::tuple(-la, -buffers[a].bytes, a) < std::tuple(-lb, -buffers[b].bytes, b);
  };
  auto time_first = [&](size_t a, size_t b) { return std::tuple(buffers[a].first, -buffers[a].bytes, a) < std::tuple(buffers[b].first, -buffers[b].bytes, b); };
  auto area_first = [&](size_t a, size_t b) {
    const double aa = static_cast<double>(buffers[a].bytes) * (buffers[a].last - buffers[a].first + 1);
    const double ab = static_cast<double>(buffers[b].bytes) * (buffers[b].last - buffers[b].first + 1);
    return std::tuple(-aa, a) < std::tuple(-ab, b);
  };
  std::vector<size_t> order(buffers.size());
  std::vector<Buffer> best;
  plan.bytes = INT64_MAX;
  auto attempt = [&](auto less) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), less);
    const int64_t top = place(buffers, order);
    if (top < plan.bytes) {
      plan.bytes = top;
      best = buffers;
    }
  };
  attempt(size_first);
  attempt(life_first);
  attempt(time_first);
  attempt(area_first);
  for (const Buffer& b : best) plan.offset[static_cast<size_t>(b.root)] = b.offset;
  for (size_t v = 0; v < g.values.size(); ++v) {
    const ValueId r = g.root(static_cast<ValueId>(v));
    if (r != static_cast<ValueId>(v)) plan.offset[v] = plan.offset[static_cast<size_t>(r)];
  }
  return plan;
}

}  // namespace mxt::graph
