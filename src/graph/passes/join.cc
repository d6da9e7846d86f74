#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "graph/passes.h"
#include "graph/uses.h"

namespace mxt::graph {
namespace {

struct Match {
  size_t add, base, down;                 // LoraAdd, the base product, z = x Aᵀ
  std::optional<size_t> dz, dx_thin, dx;  // backward: LoraDz, dx = dz A, dx += dy W
};

class Joiner {
 public:
  Joiner(Graph& g, Storage base, bool recomputed)
      : g_(g), held_(base == Storage::kFp8), apart_(recomputed), uses_(g), buffers_(g), gone_(g.ops.size(), false) {
    MXT_ASSERT(held_ || !apart_);
    for (size_t v = 0; v < g.values.size(); ++v)
      if (g.values[v].adjacent_to != kNone) take_room(static_cast<ValueId>(v));
  }

  void run() {
    std::vector<Op> ops;
    for (size_t i = 0; i < g_.ops.size(); ++i) {
      const auto* add = std::get_if<LoraAddOp>(&g_.ops[i].attrs);
      if (!add) continue;
      const std::vector<LoraBlock> blocks = add->blocks;
      if (again(i)) continue;
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
    const std::vector<ValueId> root = roots(g_);
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].adjacent_to == kNone) continue;
      int64_t& pad = g_.values[static_cast<size_t>(root[v])].pad;
      pad = std::max(pad, (g_.values[v].cols + 63) / 64 * 64);
    }
  }

 private:
  // The first operation of this kind that reads v and that f holds for.
  template <typename T, typename F>
  std::optional<size_t> find(ValueId v, F f) const {
    for (int32_t at : uses_.readers(v)) {
      const auto i = static_cast<size_t>(at);
      if (!gone_[i] && std::holds_alternative<T>(g_.ops[i].attrs) && f(g_.ops[i])) return i;
    }
    return std::nullopt;
  }
  std::optional<size_t> product_that_makes(ValueId v) const {
    const int32_t at = uses_.maker(v);
    if (at < 0 || gone_[static_cast<size_t>(at)]) return std::nullopt;
    const Op& op = g_.ops[static_cast<size_t>(at)];
    if (!std::holds_alternative<LinearOp>(op.attrs) || op.out[0] != v) return std::nullopt;
    return static_cast<size_t>(at);
  }
  struct Life {
    size_t first = SIZE_MAX, last = 0;
  };
  Life life(ValueId v) const {
    Life l;
    auto has = [v](const std::vector<ValueId>& list) { return std::find(list.begin(), list.end(), v) != list.end(); };
    auto look = [&](size_t i) {
      if (gone_[i] || !(has(g_.ops[i].in) || has(g_.ops[i].out))) return;
      l.first = std::min(l.first, i);
      l.last = std::max(l.last, i);
    };
    if (uses_.maker(v) >= 0) look(static_cast<size_t>(uses_.maker(v)));
    for (int32_t i : uses_.readers(v)) look(static_cast<size_t>(i));
    if (const auto more = new_readers_.find(v); more != new_readers_.end())
      for (size_t i : more->second) look(i);
    return l;
  }
  // Right of `host` there is room for v: the host is an activation, and nothing else lies there while v lives.
  bool has_room(ValueId host, ValueId v) {
    const ValueId r = buffers_.root(host);
    if (g_.value(host).rows != kTokens || g_.value(r).param != kNone || g_.value(r).cols != g_.value(host).cols)
      return false;
    const Life mine = life(v);
    const auto& taken = taken_[r];
    const auto after = taken.upper_bound(mine.last);
    return after == taken.begin() || std::prev(after)->second < mine.first;
  }
  void take_room(ValueId v) {
    const Life l = life(v);
    taken_[buffers_.root(g_.value(v).adjacent_to)].emplace(l.first, l.last);
  }
  void stand_for(ValueId v) {
    auto old = taken_.extract(buffers_.root(v));
    buffers_.rename(v);
    if (old) taken_[v] = std::move(old.mapped());
  }

  // Whether quantize_base() will hold the weight of a product whose result with its adapter is y.
  bool will_be_held(const Param& w, ValueId y) const {
    const auto readers = uses_.readers(y);
    return w.rows > 1 && std::none_of(readers.begin(), readers.end(), [&](int32_t i) {
             return std::holds_alternative<RouteOp>(g_.ops[static_cast<size_t>(i)].attrs);
           });
  }

  // The same adapter where the backward pass makes its product again.
  bool again(size_t i) {
    Op& add = g_.ops[i];
    const auto base = product_that_makes(add.in[0]);
    if (!base) return false;
    const auto known = joined_.find(g_.ops[*base].in[1]);
    if (known == joined_.end() ||
        !std::equal(known->second.begin(), known->second.end(), add.in.begin() + 2, add.in.end()))
      return false;
    make_at_once(add, *base);
    return true;
  }

  // The base product moves behind z's and makes y at once.
  void make_at_once(Op& add, size_t base) {
    const ValueId z = add.in[1], y = add.out[0];
    Op product = g_.ops[base];
    product.attrs = LinearOp{g_.value(z).cols};
    product.in.push_back(z);
    product.out = {y};
    g_.values[static_cast<size_t>(y)].alias_of = kNone;
    stand_for(y);  // instead of the base product's result
    gone_[base] = true;
    add = std::move(product);
  }

  std::optional<Match> match(size_t i) {
    const Op& add = g_.ops[i];
    const ValueId y = add.in[0], z = add.in[1];
    const auto base = product_that_makes(y), down = product_that_makes(z);
    if (!base || !down || *base > *down || g_.ops[*base].in[0] != g_.ops[*down].in[0])
      return std::nullopt;  // dropout stands between
    Match m{i, *base, *down, {}, {}, {}};
    const Param& w = g_.param_of(g_.ops[m.base].in[1]);
    if (w.trainable || w.joined > 0 || w.held == Storage::kCoded || (held_ && !will_be_held(w, add.out[0])))
      return std::nullopt;
    if (apart_ ? g_.value(z).cols % 16 != 0 : !has_room(g_.ops[m.base].in[0], z)) return std::nullopt;
    m.dz = find<LoraDzOp>(add.in[2], [&](const Op& o) {
      return std::equal(o.in.begin() + 1, o.in.end(), add.in.begin() + 2, add.in.end());
    });
    if (!m.dz) return m;
    const ValueId dz = g_.ops[*m.dz].out[0], dy = g_.ops[*m.dz].in[0], a = g_.ops[m.down].in[1],
                  weight = g_.ops[m.base].in[1];
    m.dx_thin = find<LinearDxOp>(dz, [&](const Op& o) { return o.in[0] == dz && o.in[1] == a; });
    if (!m.dx_thin) return m;  // nothing before x trains
    const ValueId thin = g_.ops[*m.dx_thin].out[0];
    m.dx = find<LinearDxOp>(
        thin, [&](const Op& o) { return o.in[0] == dy && o.in[1] == weight && o.in.size() == 3 && o.in[2] == thin; });
    if (!m.dx || (!apart_ && !has_room(dy, dz))) return std::nullopt;
    return m;
  }

  // Returns the operation that writes the adapter beside the weight.
  Op join(const Match& m, const std::vector<LoraBlock>& blocks) {
    Op& add = g_.ops[m.add];
    const ValueId z = add.in[1], x = g_.ops[m.base].in[0], w = g_.ops[m.base].in[1];
    const int64_t ranks = g_.value(z).cols;
    const std::vector<ValueId> ups(add.in.begin() + 2, add.in.end());
    g_.params[static_cast<size_t>(g_.value(w).param)].joined = ranks;
    std::vector<ValueId> in{w, g_.ops[m.down].in[1]};
    in.insert(in.end(), ups.begin(), ups.end());
    if (apart_)
      joined_[w] = ups;
    else
      g_.values[static_cast<size_t>(z)].adjacent_to = x;
    make_at_once(add, m.base);
    if (m.dz) {
      Op& down = g_.ops[*m.dz];
      auto& attrs = std::get<LoraDzOp>(down.attrs);
      attrs.joined = true;
      const ValueId dy = down.in[0];
      down.in = {dy, w};
      // The gradients of the Bs read dy as well: one pass makes all of them.
      std::vector<size_t> gradients;
      for (size_t i = 0; i < ups.size(); ++i)
        if (const auto at =
                find<LoraDbOp>(dy, [&](const Op& o) { return o.in[0] == dy && o.param == g_.value(ups[i]).param; }))
          gradients.push_back(*at);
      const bool all = gradients.size() == ups.size() && std::all_of(gradients.begin(), gradients.end(), [&](size_t i) {
                         const Op &o = g_.ops[i], &first = g_.ops[gradients[0]];
                         return o.first_grad == first.first_grad && o.in[1] == first.in[1];
                       });
      if (all) {
        const ValueId read = g_.ops[gradients[0]].in[1];  // z, or z made again
        down.in.push_back(read);
        new_readers_[read].push_back(*m.dz);
        down.first_grad = g_.ops[gradients[0]].first_grad;
        for (size_t i : gradients) {
          attrs.b.push_back(g_.ops[i].param);
          gone_[i] = true;
        }
      }
    }
    if (m.dx) {
      const Op& thin = g_.ops[*m.dx_thin];
      Op& dx = g_.ops[*m.dx];
      const ValueId dz = g_.ops[*m.dz].out[0];
      if (!apart_) g_.values[static_cast<size_t>(dz)].adjacent_to = dx.in[0];
      dx.attrs = LinearDxOp{ranks};
      dx.in.pop_back();
      const ValueId earlier = thin.in.size() > 2 ? thin.in[2] : kNone;  // a gradient of x from elsewhere
      if (earlier != kNone) dx.in.push_back(earlier);
      g_.values[static_cast<size_t>(dx.out[0])].alias_of = earlier;
      if (earlier == kNone) stand_for(dx.out[0]);  // instead of the thin product's result
      dx.in.push_back(dz);
      new_readers_[dz].push_back(*m.dx);
      gone_[*m.dx_thin] = true;
      if (!apart_) take_room(dz);
    }
    if (!apart_) take_room(z);
    return {LoraJoinOp{blocks}, std::move(in), {}};
  }

  Graph& g_;
  const bool held_, apart_;                         // whether the base will be in E4M3; whether z and dz lie anywhere
  std::map<ValueId, std::vector<ValueId>> joined_;  // Bs of a weight, where the product may be made again
  const Uses uses_;                                 // of the graph as it came
  Buffers buffers_;
  std::vector<bool> gone_;
  std::map<ValueId, std::map<size_t, size_t>> taken_;  // when the room right of a root's rows is: first and last places
  std::map<ValueId, std::vector<size_t>> new_readers_;  // beside those that uses_ knows
};

}  // namespace

void join_lora(Graph& g, Storage base, bool recomputed) { Joiner(g, base, recomputed).run(); }

}  // namespace mxt::graph
