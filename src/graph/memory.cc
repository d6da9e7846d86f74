#include "graph/memory.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/philox.h"
#include "graph/uses.h"

namespace mxt::graph {
namespace {

constexpr int64_t kAlign = 64;  // a cache line, and the widest vector

struct Buffer {
  ValueId root;
  int64_t bytes;
  int32_t first, last;
  int64_t offset = -1;
};

void check_in_place(const Graph& g, const std::vector<Step>& steps) {
  // position of the last read of each value
  std::vector<int32_t> last(g.values.size(), -1);
  for (size_t i = 0; i < steps.size(); ++i)
    for (ValueId v : steps[i].reads) last[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  // ... of it and of all that it was computed in place of, which is made before it
  std::vector<int32_t> whole = last;
  for (size_t i = 0; i < steps.size(); ++i)
    for (ValueId v : steps[i].writes)
      if (const ValueId a = g.value(v).alias_of; a != kNone) {
        MXT_ASSERT(whole[static_cast<size_t>(a)] <= static_cast<int32_t>(i));
        whole[static_cast<size_t>(v)] = std::max(whole[static_cast<size_t>(v)], whole[static_cast<size_t>(a)]);
      }
}

// Places buffers one after another in the given order, each into the smallest hole among those alive at the same time
// that takes it, else on top of them. Gives up (INT64_MAX) where it reaches `limit`.
int64_t place(std::vector<Buffer>& buffers, const std::vector<size_t>& order, int64_t limit = INT64_MAX) {
  struct Placed {
    int64_t offset, end;
    int32_t first, last;
  };
  std::vector<Placed> placed;  // sorted by offset
  placed.reserve(order.size());
  int64_t top = 0;
  for (size_t i : order) {
    Buffer& b = buffers[i];
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (const Placed& o : placed) {
      if (o.last < b.first || b.last < o.first) continue;
      if (o.offset - at >= b.bytes && o.offset - at < best_gap) {
        best = at;
        best_gap = o.offset - at;
      }
      at = std::max(at, o.end);
    }
    b.offset = best >= 0 ? best : at;
    top = std::max(top, b.offset + b.bytes);
    if (top >= limit) return INT64_MAX;
    const auto where = std::upper_bound(placed.begin(), placed.end(), b.offset,
                                        [](int64_t x, const Placed& y) { return x < y.offset; });
    placed.insert(where, {b.offset, b.offset + b.bytes, b.first, b.last});
  }
  return top;
}

// Packing intervals is NP-hard (Garey & Johnson's storage allocation). First a few orders that each win on some graphs;
// while the best stands above the lower bound, buffers that reach the top are placed earlier, which makes the others
// fit around them.
class Packing {
 public:
  Packing(std::vector<Buffer> buffers, int64_t lower_bound)
      : buffers_(std::move(buffers)), lower_bound_(lower_bound), order_(buffers_.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  std::vector<Buffer> run(int64_t* bytes) {
    const auto& b = buffers_;
    auto life = [&](size_t i) { return static_cast<int64_t>(b[i].last - b[i].first) + 1; };
    // The most bytes alive at any operation of a buffer's life: those around the peak come first.
    const std::vector<int64_t> pressure = pressures();
    attempt([&](size_t i) { return std::tuple(-b[i].bytes, static_cast<int64_t>(b[i].first), i); });
    attempt([&](size_t i) { return std::tuple(-life(i), -b[i].bytes, i); });
    attempt([&](size_t i) { return std::tuple(static_cast<int64_t>(b[i].first), -b[i].bytes, i); });
    attempt([&](size_t i) { return std::tuple(-static_cast<double>(b[i].bytes) * static_cast<double>(life(i)), i); });
    attempt([&](size_t i) { return std::tuple(-pressure[i], -life(i), -b[i].bytes, i); });
    attempt([&](size_t i) { return std::tuple(-pressure[i], -b[i].bytes, i); });
    improve();
    *bytes = top_;
    return best_;
  }

 private:
  static constexpr double kClose = 1.01;  // near enough to the lower bound
  static constexpr double kWork = 3e7;    // pairs of buffers looked at: some tens of milliseconds

  std::vector<int64_t> pressures() const {
    int32_t end = 0;
    for (const Buffer& b : buffers_) end = std::max(end, b.last);
    std::vector<int64_t> live(static_cast<size_t>(end) + 2, 0);
    for (const Buffer& b : buffers_) {
      live[static_cast<size_t>(b.first)] += b.bytes;
      live[static_cast<size_t>(b.last) + 1] -= b.bytes;
    }
    for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
    std::vector<int64_t> out;
    for (const Buffer& b : buffers_)
      out.push_back(*std::max_element(live.begin() + b.first, live.begin() + b.last + 1));
    return out;
  }
  bool close() const { return static_cast<double>(top_) <= kClose * static_cast<double>(lower_bound_); }
  bool keep(const std::vector<size_t>& order, int64_t top) {
    if (top >= top_) return false;
    top_ = top;
    best_ = buffers_;
    best_order_ = order;
    return true;
  }
  template <typename Key>
  void attempt(Key key) {
    if (top_ == lower_bound_) return;
    std::sort(order_.begin(), order_.end(), [&](size_t x, size_t y) { return key(x) < key(y); });
    keep(order_, place(buffers_, order_, top_));
  }
  void improve() {
    const double pairs = static_cast<double>(buffers_.size()) * static_cast<double>(buffers_.size()) / 2;
    const int tries = static_cast<int>(std::clamp(kWork / std::max(1.0, pairs), 8.0, 400.0));
    Philox random(0x9ac4, 1);
    for (int i = 0; i < tries && !close(); ++i) {
      std::vector<size_t> high;  // positions in the order of what ends near the top
      for (size_t p = 0; p < best_order_.size(); ++p) {
        const Buffer& b = best_[best_order_[p]];
        if (b.offset + b.bytes > lower_bound_) high.push_back(p);
      }
      std::vector<size_t> order = best_order_;
      const size_t from = high[random.below(high.size())];
      const size_t to = i % 2 == 0 ? from / 2 : random.below(from + 1);
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(from),
                  order.begin() + static_cast<std::ptrdiff_t>(from) + 1);
      const int64_t top = place(buffers_, order, top_ + 1);
      if (!keep(order, top) && top == top_) best_order_ = order, best_ = buffers_;  // sideways
    }
  }

  std::vector<Buffer> buffers_, best_;
  int64_t lower_bound_, top_ = INT64_MAX;
  std::vector<size_t> order_, best_order_;
};

}  // namespace

int64_t value_bytes(const Graph& g, ValueId v, const Bounds& rows) {
  const Value& x = g.value(v);
  const int64_t n = rows.rows(x.rows) * (x.cols + x.pad) * static_cast<int64_t>(size_of(x.type));
  return (n + kAlign - 1) / kAlign * kAlign;
}

std::vector<Step> steps_of(const Graph& g) {
  std::vector<Step> steps;
  for (const Op& op : g.ops) steps.push_back({op.in, op.out});
  return steps;
}

MemoryPlan plan_memory(const Graph& g, const std::vector<Step>& steps, const Bounds& most,
                       const std::vector<ValueId>& keep) {
  MXT_ASSERT(steps.size() == g.ops.size());
  check_in_place(g, steps);
  MemoryPlan plan;
  plan.offset.assign(g.values.size(), -1);
  std::vector<int32_t> index(g.values.size(), -1);
  std::vector<Buffer> buffers;
  const int32_t end = static_cast<int32_t>(steps.size());
  const std::vector<ValueId> root = roots(g);
  auto touch = [&](ValueId v, int32_t at) {
    const ValueId r = root[static_cast<size_t>(v)];
    if (g.value(r).param != kNone) return;
    int32_t& i = index[static_cast<size_t>(r)];
    if (i < 0) {
      i = static_cast<int32_t>(buffers.size());
      buffers.push_back({r, value_bytes(g, r, most), at, at});
    }
    buffers[static_cast<size_t>(i)].last = std::max(buffers[static_cast<size_t>(i)].last, at);
  };
  for (int32_t i = 0; i < end; ++i) {
    for (ValueId v : steps[static_cast<size_t>(i)].reads) touch(v, i);
    for (ValueId v : steps[static_cast<size_t>(i)].writes) touch(v, i);
  }
  for (ValueId v : keep) touch(v, end);
  // Between the two passes the caller reads what was made and writes what the backward pass begins from.
  for (const Root& r : g.roots)
    for (ValueId v : {r.value, r.seed}) touch(v, g.forward_ops);

  std::vector<int64_t> delta(static_cast<size_t>(end) + 2, 0);
  for (const Buffer& b : buffers) {
    delta[static_cast<size_t>(b.first)] += b.bytes;
    delta[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  int64_t live = 0;
  for (int64_t d : delta) plan.lower_bound = std::max(plan.lower_bound, live += d);
  for (const Buffer& b : buffers)
    if (b.first < g.forward_ops && b.last >= g.forward_ops) plan.bytes_at_peak_for_backward += b.bytes;

  const std::vector<Buffer> best = Packing(std::move(buffers), plan.lower_bound).run(&plan.bytes);
  for (const Buffer& b : best) plan.offset[static_cast<size_t>(b.root)] = b.offset;
  for (size_t v = 0; v < g.values.size(); ++v) {
    const ValueId r = root[v];
    if (r != static_cast<ValueId>(v)) plan.offset[v] = plan.offset[static_cast<size_t>(r)];
  }
  return plan;
}

}  // namespace mxt::graph
