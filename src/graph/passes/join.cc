#include <algorithm>
#include <optional>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/passes.h"

namespace mxt::graph {
namespace {

struct Match {
  size_t add, base, down;                 // LoraAdd, the base product, z = x Aᵀ
  std::optional<size_t> dz, dx_thin, dx;  // backward: LoraDz, dx = dz A, dx += dy W
};

class Joiner {
 public:
  explicit Joiner(Graph& g) : g_(g), gone_(g.ops.size(), false) {}

  void run() {
    std::vector<Op> ops;
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      const auto* add = std::get_if<LoraAddOp>(&g_.ops[i].attrs);
      if (!add) continue;
      const std::vector<LoraBlock> blocks = add->blocks;
      if (const std::optional<Match> m = match(i)) ops.push_back(join(*m, blocks));
    }
    const int32_t forward = g_.forward_ops;
    int32_t now = forward > 0 ? static_cast<int32_t>(ops.size()) : 0;
    for (size_t i = 0; i < gone_.size(); ++i) {
      if (gone_[i]) continue;
      now += static_cast<int32_t>(i) < forward;
      ops.push_back(std::move(g_.ops[i]));
    }
    g_.forward_ops = now;
    g_.ops = std::move(ops);
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].beside == kNone) continue;
      int64_t& pad = g_.values[static_cast<size_t>(g_.root(static_cast<ValueId>(v)))].pad;
      pad = std::max(pad, (g_.values[v].cols + 63) / 64 * 64);
    }
  }

 private:
  template <typename T, typename F>
  std::optional<size_t> find(F f) const {
    for (size_t i = 0; i < g_.ops.size(); ++i)
      if (!gone_[i] && std::holds_alternative<T>(g_.ops[i].attrs) && f(g_.ops[i])) return i;
    return std::nullopt;
  }
  struct Life {
    size_t first = SIZE_MAX, last = 0;
  };
  Life life(ValueId v) const {
    Life l;
    auto has = [v](const std::vector<ValueId>& list) { return std::find(list.begin(), list.end(), v) != list.end(); };
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      if (gone_[i] || !(has(g_.ops[i].in) || has(g_.ops[i].out))) continue;
      l.first = std::min(l.first, i);
      l.last = i;
    }
    return l;
  }
  // Right of `host` there is room for v: the host is an activation, and nothing else lies there while v lives.
  bool has_room(ValueId host, ValueId v) const {
    const ValueId r = g_.root(host);
    if (g_.value(host).rows != kTokens || g_.value(r).param != kNone || g_.value(r).cols != g_.value(host).cols)
      return false;
    const Life mine = life(v);
    for (size_t o = 0; o < g_.values.size(); ++o) {
      const auto other = static_cast<ValueId>(o);
      if (g_.value(other).beside == kNone || g_.root(other) != r) continue;
      const Life theirs = life(other);
      if (theirs.first <= mine.last && mine.first <= theirs.last) return false;
    }
    return true;
  }

  std::optional<Match> match(size_t i) const {
    const Op& add = g_.ops[i];
    const ValueId y = add.in[0], z = add.in[1];
    const auto base = find<LinearOp>([&](const Op& o) { return o.out[0] == y; }),
               down = find<LinearOp>([&](const Op& o) { return o.out[0] == z; });
    if (!base || !down || *base > *down || g_.ops[*base].in[0] != g_.ops[*down].in[0])
      return std::nullopt;  // dropout stands between
    Match m{i, *base, *down, {}, {}, {}};
    const Param& w = g_.param_of(g_.ops[m.base].in[1]);
    if (w.trainable || w.joined > 0 || !has_room(g_.ops[m.base].in[0], z)) return std::nullopt;
    m.dz = find<LoraDzOp>(
        [&](const Op& o) { return std::equal(o.in.begin() + 1, o.in.end(), add.in.begin() + 2, add.in.end()); });
    if (!m.dz) return m;
    const ValueId dz = g_.ops[*m.dz].out[0], dy = g_.ops[*m.dz].in[0], a = g_.ops[m.down].in[1],
                  weight = g_.ops[m.base].in[1];
    m.dx_thin = find<LinearDxOp>([&](const Op& o) { return o.in[0] == dz && o.in[1] == a; });
    if (!m.dx_thin) return m;  // nothing before x trains
    const ValueId thin = g_.ops[*m.dx_thin].out[0];
    m.dx = find<LinearDxOp>(
        [&](const Op& o) { return o.in[0] == dy && o.in[1] == weight && o.in.size() == 3 && o.in[2] == thin; });
    if (!m.dx || !has_room(dy, dz)) return std::nullopt;
    return m;
  }

  // Returns the operation that writes the adapter beside the weight.
  Op join(const Match& m, const std::vector<LoraBlock>& blocks) {
    Op& add = g_.ops[m.add];
    Op& base = g_.ops[m.base];
    const ValueId z = add.in[1], y = add.out[0], w = base.in[1];
    const int64_t ranks = g_.value(z).cols;
    g_.params[static_cast<size_t>(g_.value(w).param)].joined = ranks;
    std::vector<ValueId> in{w, g_.ops[m.down].in[1]};
    in.insert(in.end(), add.in.begin() + 2, add.in.end());
    g_.values[static_cast<size_t>(z)].beside = base.in[0];
    // The base product moves behind z's and makes y at once.
    Op product = base;
    product.attrs = LinearOp{ranks};
    product.in.push_back(z);
    product.out = {y};
    g_.values[static_cast<size_t>(y)].same_as = kNone;
    gone_[m.base] = true;
    add = std::move(product);
    if (m.dz) {
      Op& down = g_.ops[*m.dz];
      auto& attrs = std::get<LoraDzOp>(down.attrs);
      attrs.joined = true;
      const ValueId dy = down.in[0];
      down.in = {dy, w};
      // The gradients of the Bs read dy as well: one pass makes all of them.
      std::vector<size_t> ups;
      for (const LoraBlock& k : blocks)
        if (const auto at = find<LoraDbOp>([&](const Op& o) {
              return o.in[0] == dy && o.in[1] == z && std::get<LoraDbOp>(o.attrs).block.col == k.col;
            }))
          ups.push_back(*at);
      const bool all = ups.size() == blocks.size() && std::all_of(ups.begin(), ups.end(), [&](size_t i) {
                         return g_.ops[i].first_grad == g_.ops[ups[0]].first_grad;
                       });
      if (all) {
        down.in.push_back(z);
        down.first_grad = g_.ops[ups[0]].first_grad;
        for (size_t i : ups) {
          attrs.b.push_back(g_.ops[i].param);
          gone_[i] = true;
        }
      }
    }
    if (m.dx) {
      const Op& thin = g_.ops[*m.dx_thin];
      Op& dx = g_.ops[*m.dx];
      const ValueId dz = g_.ops[*m.dz].out[0];
      g_.values[static_cast<size_t>(dz)].beside = dx.in[0];
      dx.attrs = LinearDxOp{ranks};
      dx.in.pop_back();
      const ValueId earlier = thin.in.size() > 2 ? thin.in[2] : kNone;  // a gradient of x from elsewhere
      if (earlier != kNone) dx.in.push_back(earlier);
      g_.values[static_cast<size_t>(dx.out[0])].same_as = earlier;
      dx.in.push_back(dz);
      gone_[*m.dx_thin] = true;
    }
    return {LoraJoinOp{blocks}, std::move(in), {}};
  }

  Graph& g_;
  std::vector<bool> gone_;
};

}  // namespace

void join_lora(Graph& g) { Joiner(g).run(); }

}  // namespace mxt::graph
