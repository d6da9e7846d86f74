// Training graphs with a random shape, made of the operations that models use: chains, long skips, several readers of
// one value, attention, dropout, adapters' kind of thin products, widths that differ. A function of the seed.
#pragma once

#include <algorithm>
#include <vector>

#include "base/philox.h"
#include "graph/graph.h"
#include "graph/ops.h"
#include "graph/passes.h"

namespace mxt::graph {

inline Graph random_graph(uint64_t seed, DType type, Recompute recompute = Recompute::kNone) {
  Philox r(seed, 77);
  Graph g;
  g.act_type = type;
  g.vocab = 48;
  g.max_positions = 32;
  int params = 0;
  auto matrix = [&](int64_t rows, int64_t cols, ParamKind kind = ParamKind::kMatrix) {
    Param p;
    p.name = "p" + std::to_string(params++);
    p.kind = kind;
    p.rows = rows;
    p.cols = cols;
    p.trainable = r.below(4) != 0;
    return g.params[static_cast<size_t>(g.add_param(p, type))].value;
  };
  static constexpr int64_t kWidths[] = {8, 16, 32, 64, 96, 160};
  std::vector<ValueId> pool{embedding(g, matrix(g.vocab, kWidths[r.below(6)], ParamKind::kEmbedding))};
  std::vector<int> reads(1, 0);
  auto pick = [&] {  // mostly what is new, now and then something old
    const size_t n = pool.size();
    size_t back = 0;
    while (back + 1 < n && r.below(3) != 0) ++back;
    if (r.below(6) == 0) back = r.below(n);
    const size_t i = n - 1 - back;
    ++reads[i];
    return pool[i];
  };
  auto give = [&](ValueId v) {
    pool.push_back(v);
    reads.push_back(0);
  };
  auto to_width = [&](ValueId x, int64_t width) {
    return g.value(x).cols == width ? x : linear(g, x, matrix(width, g.value(x).cols));
  };
  const int64_t count = 10 + static_cast<int64_t>(r.below(60));
  for (int64_t i = 0; i < count; ++i) {
    const ValueId x = pick();
    const int64_t cols = g.value(x).cols;
    switch (r.below(7)) {
      case 0:
      case 1:
        give(linear(g, x, matrix(kWidths[r.below(6)], cols)));
        break;
      case 2:
        give(act(g, x, cols % 16 == 0 && r.below(2) ? ActKind::kSwiGlu : ActKind::kGeluTanh));
        break;
      case 3: {
        const bool residual = r.below(2) == 1;
        const ValueId other = residual ? to_width(pick(), cols) : kNone;
        const NormOut n = norm(g, x, other, matrix(1, cols, ParamKind::kNormWeight), kNone, false, 1e-5f);
        give(n.y);
        if (residual) give(n.h);
        break;
      }
      case 4:
        give(add(g, x, to_width(pick(), cols)));
        break;
      case 5:
        give(dropout(g, x, 0.1f));
        break;
      case 6: {
        AttentionOp a;
        a.heads = 2;
        a.kv_heads = 1;
        a.head_dim = 8;
        a.scale = 0.35f;
        give(attention(g, to_width(x, 32), a));
        break;
      }
    }
  }
  ValueId sum = kNone;  // everything that nobody reads reaches the loss
  for (size_t i = 0; i < pool.size(); ++i)
    if (reads[i] == 0 || i + 1 == pool.size()) {
      const ValueId v = to_width(pool[i], 32);
      sum = sum == kNone ? v : add(g, sum, v);
    }
  const ValueId y = norm(g, sum, kNone, matrix(1, 32, ParamKind::kNormWeight), kNone, false, 1e-5f).y;
  head(g, y, matrix(g.vocab, 32), 8, 0, true);
  differentiate(g);
  graph::recompute(g, recompute);
  in_place(g);
  return g;
}

}  // namespace mxt::graph
