// Backward of attention, tile by tile (Dao 2023, algorithm 2): scores are computed again from q, k and lse; then
// dv = pᵀ dout, ds = p ∘ (dout vᵀ − delta), dk = scale·dsᵀ q, dq = scale·ds k. Tiles are computed transposed (keys
// down, queries across), so that lse and delta lie along vectors and pᵀ, dsᵀ are the left operands of dv and dk.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/checks.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention/tasks.h"
#include "kernels/cpu/attention/tile.h"

namespace mxt::kernels::cpu {
namespace {

constexpr int64_t kKeyBlock = 512;  // keys whose dk and dv sums are kept at a time

struct Task : AttentionTask {
  bool want_q, want_kv;
  double cost;
  int64_t followers = 0, followers_end = 0;  // documents that go on from this one, whose queries see its keys
};

// Rows that a task is over, of queries or of keys: row `begin` is the first, and stands at `position`.
struct Span {
  int64_t begin, position;
};

class Backward {
 public:
  Backward(const AttentionGrad& grad, const Task& task, Arena& arena, std::vector<char>& started)
      : a(grad),
        t(task),
        tile(task.tile),
        kernels(grad.q.type),
        d(grad.head_dim),
        group(grad.heads / grad.kv_heads),
        panels(panels_of(d)),
        dsteps(kernels.steps(d)),
        first_started(started) {
    const int64_t keys = std::max(t.key_end - t.key_begin, t.want_q ? t.prefix : 0);
    block = std::min(kKeyBlock, (keys + tile.keys - 1) / tile.keys * tile.keys);
    const int64_t q_tiles = (t.query_end - t.query_begin + tile.queries - 1) / tile.queries;
    const int64_t pair = Arena::rounded(tile.queries * tile.keys), sums = tile.keys * panels * kPanel;
    const int64_t qt_units = packed_units(kernels, tile.queries, d), qs_units = packed_units(kernels, d, tile.queries);
    ks_units = packed_units(kernels, d, tile.keys);
    const bool copy = !kernels.in_place(d);
    const int64_t dq_units = t.want_q ? group * q_tiles * tile.queries * panels * kPanel : 0;
    const int64_t kv_units = t.want_kv ? block / tile.keys * sums : 0;
    reserved = 2 * Arena::rounded(qt_units) + 2 * Arena::rounded(qs_units) + (kernels.amx ? 6 : 5) * pair +
               2 * Arena::rounded(tile.queries) + Arena::rounded(block / tile.keys * ks_units) +
               2 * Arena::rounded(kv_units) + Arena::rounded(dq_units) +
               (copy ? 2 * Arena::rounded(block * dsteps) : 0);
    arena.reserve(reserved);
    qt = arena.take<uint32_t>(qt_units), ot = arena.take<uint32_t>(qt_units);
    qs = arena.take<uint32_t>(qs_units), os = arena.take<uint32_t>(qs_units);
    st = arena.take(pair), dpt = arena.take(pair), p = arena.take(pair), ds = arena.take(pair),
    dsq = arena.take<uint32_t>(pair);
    if (kernels.amx) dsr = arena.take<uint32_t>(pair);
    lse2 = arena.take(tile.queries), delta = arena.take(tile.queries);
    ks = arena.take<uint32_t>(block / tile.keys * ks_units);
    dk = arena.take(kv_units), dv = arena.take(kv_units), dq = arena.take(dq_units);
    if (copy) k_rows = arena.take<uint32_t>(block * dsteps), v_rows = arena.take<uint32_t>(block * dsteps);
    first_started.assign(static_cast<size_t>(group * q_tiles), 0);
  }

  int64_t units() const { return reserved; }  // of the arena

  void run() {
    if (t.want_q && t.prefix > 0) {
      key_rows = {t.prefix_begin, 0}, wants_kv = false;
      over_keys(0, t.prefix);
    }
    key_rows = {t.begin, t.prefix}, wants_kv = t.want_kv;
    over_keys(t.key_begin, t.key_end);
    if (t.want_q) store_queries();
  }

 private:
  void over_keys(int64_t first, int64_t last) {
    for (int64_t key = first; key < last; key += block) {
      const int64_t end = std::min(key + block, last);
      query_rows = {t.begin, t.prefix}, wants_q = t.want_q;
      if (!wants_kv && a.window > 0 && key_rows.position + end - 1 + a.window <= t.prefix + t.query_begin) continue;
      load_keys(key, end);
      over_queries(t.query_begin, t.query_end, key, end);
      if (!wants_kv) continue;
      wants_q = false;
      for (int64_t i = t.followers; i < t.followers_end; ++i) {
        query_rows = {a.cu_seqlens[i], t.prefix + t.length};
        over_queries(0, a.cu_seqlens[i + 1] - a.cu_seqlens[i], key, end);
      }
      store_keys(key, end);
    }
  }

  // Queries [first, last) of query_rows against keys [key, end) of key_rows.
  void over_queries(int64_t first, int64_t last, int64_t key, int64_t end) {
    const int64_t ahead = query_rows.position - key_rows.position;
    for (int64_t h = 0; h < group; ++h)
      for (int64_t q = first; q < last; q += tile.queries) {
        const int64_t count = std::min(tile.queries, last - q), from = ahead + q;  // counted as keys are
        if ((causal && from + count <= key) || (a.window > 0 && end - 1 + a.window <= from)) continue;
        load_queries(h, q, count);
        for (int64_t j = key; j < end && (!causal || j < from + count); j += tile.keys) {
          const int64_t keys = std::min(tile.keys, end - j);
          if (a.window > 0 && j + keys - 1 + a.window <= from) continue;
          pair_of_tiles(h, q, count, key, j, keys);
        }
      }
  }

  const char* at(const ConstMat& m, const Span& rows, int64_t row, int64_t head) const {
    return static_cast<const char*>(m.p) + ((rows.begin + row) * m.ld + head * d) * kernels.size();
  }
  int64_t head(int64_t h) const { return t.kv_head * group + h; }

  void load_keys(int64_t key, int64_t end) {
    if (wants_q)
      for (int64_t j = key; j < end; j += tile.keys)
        kernels.pack(at(a.k, key_rows, j, t.kv_head), a.k.ld, false, d, std::min(tile.keys, end - j),
                     ks + (j - key) / tile.keys * ks_units);
    if (k_rows) {
      kernels.copy_rows(at(a.k, key_rows, key, t.kv_head), a.k.ld, end - key, d, k_rows);
      kernels.copy_rows(at(a.v, key_rows, key, t.kv_head), a.v.ld, end - key, d, v_rows);
    }
    keys_started.assign(static_cast<size_t>(block / tile.keys), 0);
  }

  void load_queries(int64_t h, int64_t q, int64_t count) {
    const char *queries = at(a.q, query_rows, q, head(h)), *grads = at(a.dout, query_rows, q, head(h));
    kernels.pack(queries, a.q.ld, true, count, d, qt);
    kernels.pack(grads, a.dout.ld, true, count, d, ot);
    if (wants_kv) {
      kernels.pack(queries, a.q.ld, false, d, count, qs);
      kernels.pack(grads, a.dout.ld, false, d, count, os);
    }
    row_dots(grads, a.dout.ld, at(a.out, query_rows, q, head(h)), a.out.ld, kernels.bf16, count, d, delta);
    const float* lse = a.lse + head(h) * a.q.rows + query_rows.begin + q;
    for (int64_t i = 0; i < count; ++i) lse2[i] = lse[i] * kLog2E;
    for (int64_t i = count; i < tile.queries; ++i) lse2[i] = delta[i] = 0;
  }

  // to [keys][queries] = alpha · rows of k or v · packed queries.
  void products(const ConstMat& m, const uint32_t* rows, int64_t key, int64_t j, int64_t keys, int64_t count,
                const uint32_t* packed, float alpha, float* to) {
    PanelCall c;
    if (rows)
      c.a = rows + (j - key) * dsteps, c.a_row = dsteps * 4;
    else
      c.a = at(m, key_rows, j, t.kv_head), c.a_row = m.ld * kernels.size();
    c.a_step = 4, c.m = keys, c.steps = dsteps, c.alpha = alpha, c.ldc = tile.queries;
    for (int64_t i = 0; i < count; i += kPanel) {
      c.n = std::min(kPanel, count - i), c.b = packed + i * dsteps, c.c = to + i;
      kernels.multiply(c);
    }
  }

  // sums [panels][rows of a tile][64] += a · packed right operand of `width` d.
  void add(const void* left, int64_t row, int64_t step, int64_t m, int64_t steps, const uint32_t* packed, float* sums,
           int64_t tile_rows, bool started) {
    PanelCall c;
    c.a = left, c.a_row = row, c.a_step = step, c.m = m, c.steps = steps, c.from_partial = started, c.to_partial = true;
    for (int64_t i = 0; i < panels; ++i) {
      c.n = std::min(kPanel, d - i * kPanel), c.b = packed + i * kPanel * steps,
      c.partial = sums + i * tile_rows * kPanel;
      kernels.multiply(c);
    }
  }

  void pair_of_tiles(int64_t h, int64_t q, int64_t count, int64_t key, int64_t j, int64_t keys) {
    products(a.k, k_rows, key, j, keys, count, qt, a.scale * kLog2E, st);
    products(a.v, v_rows, key, j, keys, count, ot, 1, dpt);
    GradTile g;
    g.st = st, g.dpt = dpt, g.p = p, g.ds = ds, g.ld = tile.queries, g.keys = keys, g.queries = count;
    // Who sees all keys is where the last one is.
    g.first_query = causal ? query_rows.position + q : t.length, g.first_key = key_rows.position + j,
    g.window = a.window, g.bf16 = kernels.bf16_inside, g.lse2 = lse2, g.delta = delta;
    const Drop drop = Drop::of(a);
    if (drop.threshold > 0) draw(drop, h, q, count, j, keys);
    if (drop.threshold > 0)
      for (int64_t k = 0; k < keys; ++k)
        for (int64_t i = 0; i < count; ++i)
          dpt[k * tile.queries + i] = kept(k, i) ? dpt[k * tile.queries + i] * drop.scale : 0.0f;
    grad_tile(g);
    if (drop.threshold > 0)  // dv's factor 1/(1−p) is applied when it is stored
      for (int64_t k = 0; k < keys; ++k)
        for (int64_t i = 0; i < count; ++i)
          if (!kept(k, i))
            kernels.bf16_inside ? void(reinterpret_cast<uint16_t*>(p)[k * tile.queries + i] = 0)
                                : void(p[k * tile.queries + i] = 0);
    const int64_t row = tile.queries * kernels.size_inside(), at_tile = (j - key) / tile.keys;
    if (wants_kv) {
      const int64_t sums = at_tile * tile.keys * panels * kPanel;
      const bool started = keys_started[static_cast<size_t>(at_tile)];
      add(p, row, 4, keys, kernels.steps(count), os, dv + sums, tile.keys, started);
      add(ds, row, 4, keys, kernels.steps(count), qs, dk + sums, tile.keys, started);
      keys_started[static_cast<size_t>(at_tile)] = 1;
    }
    if (wants_q) {
      const int64_t index = query_tile(h, q), width = panel_width(count);
      const void* left = ds;
      int64_t step = tile.queries * 4, row_of_left = 4;
      if (kernels.bf16_inside) {
        PackCall c;
        c.p = ds, c.ld = tile.queries, c.k_contiguous = false, c.count = count, c.width = width, c.k = keys,
        c.to = dsq;  // [steps][width]: AVX-512's
        kernels.micro->pack(c);
        left = dsq, step = width * 4;
      }
      if (kernels.amx) {  // the same units as rows of queries
        PackCall c;
        c.p = dsq, c.ld = width, c.count = kernels.steps(keys), c.width = panel_width(c.count), c.k = count, c.to = dsr;
        avx512_micro(Unit::kF32)->pack(c);
        left = dsr, row_of_left = c.width * 4, step = 4;
      }
      add(left, row_of_left, step, count, kernels.steps(keys), ks + at_tile * ks_units,
          dq + index * tile.queries * panels * kPanel, tile.queries, first_started[static_cast<size_t>(index)]);
      first_started[static_cast<size_t>(index)] = 1;
    }
  }

  void draw(const Drop& drop, int64_t h, int64_t q, int64_t count, int64_t j, int64_t keys) {
    mask.resize(static_cast<size_t>(tile.keys * tile.queries));
    for (int64_t i = 0; i < count; ++i)
      drop.draw(head(h), t.begin + q + i, t.begin + j, keys,
                [&](int64_t k, bool keep) { mask[static_cast<size_t>(k * tile.queries + i)] = keep; });
  }
  bool kept(int64_t k, int64_t i) const { return mask[static_cast<size_t>(k * tile.queries + i)] != 0; }

  int64_t query_tile(int64_t h, int64_t q) const {
    return h * ((t.query_end - t.query_begin + tile.queries - 1) / tile.queries) + (q - t.query_begin) / tile.queries;
  }

  void store(const float* sums, int64_t tile_rows, int64_t rows, float factor, const Mat& m, const Span& span,
             int64_t row, int64_t column) {
    StoreRows s;
    s.from = sums, s.tile_rows = tile_rows, s.rows = rows, s.cols = d, s.factor = factor;
    s.to = const_cast<char*>(at(m, span, row, column)), s.ld = m.ld, s.bf16 = kernels.bf16;
    store_rows(s);
  }
  void store_keys(int64_t key, int64_t end) {
    for (int64_t j = key; j < end; j += tile.keys) {
      const int64_t sums = (j - key) * panels * kPanel, rows = std::min(tile.keys, end - j);
      store(dk + sums, tile.keys, rows, a.scale, a.dk, key_rows, j, t.kv_head);
      store(dv + sums, tile.keys, rows, Drop::of(a).scale, a.dv, key_rows, j, t.kv_head);
    }
  }
  void store_queries() {
    for (int64_t h = 0; h < group; ++h)
      for (int64_t q = t.query_begin; q < t.query_end; q += tile.queries)
        store(dq + query_tile(h, q) * tile.queries * panels * kPanel, tile.queries,
              std::min(tile.queries, t.query_end - q), a.scale, a.dq, Span{t.begin, t.prefix}, q, head(h));
  }

  const AttentionGrad& a;
  const Task& t;
  const TileSize tile;
  const TileKernels kernels;
  const int64_t d, group, panels, dsteps;
  const bool causal = a.causal;
  Span key_rows{}, query_rows{};           // at hand
  bool wants_q = false, wants_kv = false;  // of these
  int64_t block = 0, ks_units = 0, reserved = 0;
  uint32_t *qt, *ot, *qs, *os, *dsq, *dsr = nullptr, *ks, *k_rows = nullptr, *v_rows = nullptr;
  float *st, *dpt, *p, *ds, *lse2, *delta, *dk, *dv, *dq;
  std::vector<char>& first_started;  // query tiles that have sums
  std::vector<char> keys_started;    // key tiles that have sums
  std::vector<char> mask;            // dropout: [keys][queries] of the pair of tiles at hand
};

// One task a document and kv head, unless a document is so long that threads would wait for it: then its keys and its
// queries are cut, and the scores computed twice. Either way each sum has the same order.
void make_tasks(const AttentionGrad& a, std::vector<Task>& tasks) {
  tasks.clear();
  double total = 0;
  const auto length = [&](int64_t i) { return int64_t{a.cu_seqlens[i + 1]} - a.cu_seqlens[i]; };
  // Queries times keys of a document's own task.
  const auto cost_of = [&](int64_t i, int64_t prefix, int64_t followers_end) {
    const int64_t seen_by = a.cu_seqlens[followers_end] - a.cu_seqlens[i];
    return static_cast<double>(length(i)) * static_cast<double>(prefix + seen_by);
  };
  const auto followers_end_of = [&](int64_t i) {
    int64_t end = i + 1;
    while (a.prefix && end < a.documents && a.prefix[end] == i) ++end;
    return end;
  };
  for (int64_t i = 0; i < a.documents; ++i) {
    int64_t begin;
    total += cost_of(i, prefix_of(a, i, &begin), followers_end_of(i)) * static_cast<double>(a.kv_heads);
  }
  const double most = total / (2.0 * num_threads());
  const int64_t cut = kKeyBlock;
  for (int64_t i = 0; i < a.documents; ++i) {
    const int64_t begin = a.cu_seqlens[i], n = length(i), followers_end = followers_end_of(i);
    if (n == 0) continue;
    int64_t prefix_begin;
    const int64_t prefix = prefix_of(a, i, &prefix_begin);
    const TileSize tile = attention_tile(a.algo, prefix + n);
    const double cost = cost_of(i, prefix, followers_end);
    const auto add = [&](AttentionTask t, bool q, bool kv, double c) {
      t.prefix_begin = prefix_begin, t.prefix = prefix;
      tasks.push_back({t, q, kv, c, i + 1, followers_end});
    };
    for (int64_t kv = 0; kv < a.kv_heads; ++kv) {
      if (n <= cut || cost <= most || num_threads() == 1) {
        add({begin, n, kv, 0, n, 0, n, tile}, true, true, cost);
        continue;
      }
      for (int64_t b = 0; b < n; b += cut) {
        const int64_t e = std::min(n, b + cut);
        const int64_t from = a.causal ? b : 0, to = a.causal ? e : n;
        const int64_t seen_by = a.cu_seqlens[followers_end] - begin - from;
        add({begin, n, kv, from, n, b, e, tile}, false, true, static_cast<double>(seen_by * cut));
        add({begin, n, kv, b, e, 0, to, tile}, true, false, static_cast<double>((prefix + to) * cut));
      }
    }
  }
  std::sort(tasks.begin(), tasks.end(), [](const Task& x, const Task& y) { return x.cost > y.cost; });
}

}  // namespace

// As if every thread had a document of the longest kind, uncut.
size_t attention_grad_memory(const AttentionGrad& a) {
  const int64_t longest = a.longest > 0 ? a.longest : a.q.rows;
  const Task t{{0, longest, 0, 0, longest, 0, longest, attention_tile(a.algo, longest)}, true, true, 0};
  Arena arena;
  std::vector<char> started;
  return static_cast<size_t>(num_threads() * Backward(a, t, arena, started).units() * 4);
}

void attention_grad(const AttentionGrad& a) {
  check(a);
  thread_local std::vector<Task> tasks;
  make_tasks(a, tasks);
  const Task* list = tasks.data();
  parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t i, int64_t) {
    thread_local Arena arena;
    thread_local std::vector<char> started;
    Backward(a, list[i], arena, started).run();
  });
}

}  // namespace mxt::kernels::cpu
