#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/checks.h"
#include "kernels/cpu/attention/forward.h"
#include "kernels/cpu/attention/tasks.h"

namespace mxt::kernels::cpu {
namespace {

char* at(const void* p, int64_t elements, DType t) {
  return static_cast<char*>(const_cast<void*>(p)) + elements * static_cast<int64_t>(size_of(t));
}

// Queries that share a packed tile of keys: as many as keep their sums in the L2 cache.
int64_t query_block(const TileSize& tile, int64_t d, int64_t group) {
  const int64_t sums = panels_of(d) * kPanel * group;
  return std::max(tile.queries, (int64_t{64} << 10) / sums / tile.queries * tile.queries);
}

// Units of a thread's arena for a block of `queries` of one document.
int64_t forward_units(const TileForward& f, int64_t queries, int64_t group) {
  return f.units() + (queries + f.query_rows() - 1) / f.query_rows() * group * f.query_units();
}

}  // namespace

size_t attention_memory(const Attention& a) {
  const int64_t longest = a.longest > 0 ? a.longest : a.q.rows, group = a.heads / a.kv_heads;
  const TileSize tile = attention_tile(a.algo, longest);
  const TileForward f(a.q.type, a.head_dim, a.window, a.scale, tile.queries, tile.keys);
  return static_cast<size_t>(num_threads() *
                             forward_units(f, std::min(longest, query_block(tile, a.head_dim, group)), group) * 4);
}

std::vector<std::string> attention_algorithms() { return {"auto", "tile_32", "tile_64", "tile_64x128"}; }

// "auto", as measured on Zen 5: small tiles waste less above the diagonal, large ones pack and rescale less often.
TileSize attention_tile(int algo, int64_t length) {
  switch (algo) {
    case 0:
      return attention_tile(length <= 128 ? 1 : length <= 1024 ? 2 : 3, length);
    case 1:
      return {32, 32};
    case 2:
      return {64, 64};
    case 3:
      return {64, 128};
    default:
      MXT_ASSERT(!"attention: no such algorithm");
  }
}

int same_attention(const Attention& a, int algo) {
  const int64_t longest = a.longest > 0 ? a.longest : a.q.rows;
  return algo == 1 && longest <= 128 ? 0 : algo;  // "auto" with short documents alone
}

void attention(const Attention& a) {
  check(a);
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads, tokens = a.q.rows;
  thread_local std::vector<AttentionTask> tasks;
  tasks.clear();
  for (int64_t doc = 0; doc < a.documents; ++doc) {
    const int64_t begin = a.cu_seqlens[doc], n = a.cu_seqlens[doc + 1] - begin;
    int64_t prefix_begin;
    const int64_t prefix = prefix_of(a, doc, &prefix_begin);
    const TileSize tile = attention_tile(a.algo, prefix + n);
    const int64_t block = query_block(tile, d, group);
    for (int64_t q = 0; q < n; q += block)
      for (int64_t kv = 0; kv < a.kv_heads; ++kv)
        tasks.push_back({begin, n, kv, q, std::min(n, q + block), 0, n, tile, prefix_begin, prefix});
  }
  const AttentionTask* list = tasks.data();  // thread_local: another thread has its own
  parallel_for(0, static_cast<int64_t>(tasks.size()), 1, [&](int64_t i, int64_t) {
    const AttentionTask& t = list[i];
    const TileSize tile = t.tile;
    thread_local Arena arena;
    thread_local std::vector<QueryTile> queries;
    TileForward f(a.q.type, d, a.window, a.scale, tile.queries, tile.keys);
    const int64_t tiles = (t.query_end - t.query_begin + tile.queries - 1) / tile.queries * group;
    arena.reserve(forward_units(f, t.query_end - t.query_begin, group));
    f.take(arena);
    f.set_dropout(Drop::of(a), t.begin);
    queries.clear();
    for (int64_t h = 0; h < group; ++h)
      for (int64_t q = t.query_begin; q < t.query_end; q += tile.queries) {
        QueryTile x;
        x.q = at(a.q.p, (t.begin + q) * a.q.ld + (t.kv_head * group + h) * d, a.q.type), x.ld = a.q.ld;
        x.rows = std::min(tile.queries, t.query_end - q), x.first_query = t.prefix + q, x.head = t.kv_head * group + h;
        // Who sees all keys is where the last one is.
        if (!a.causal) x.first_query = t.length - 1, x.same_query = true;
        f.start(x, arena);
        queries.push_back(x);
      }
    // Keys [0, end) of the document whose first token is row `begin` and stands at `position`; `length`: all of them.
    const auto attend = [&](int64_t begin, int64_t position, int64_t end, int64_t length) {
      for (int64_t key = 0; key < end; key += tile.keys) {
        const int64_t row = begin + key, first = position + key, count = std::min(tile.keys, length - key);
        if (!f.sees(t.prefix + t.query_begin, first, count)) continue;
        f.set_keys(at(a.k.p, row * a.k.ld + t.kv_head * d, a.k.type), a.k.ld,
                   at(a.v.p, row * a.v.ld + t.kv_head * d, a.v.type), a.v.ld, first, count);
        for (auto& x : queries)
          if (x.first_query + x.rows > first && f.sees(x.first_query, first, count)) f.attend(x);
      }
    };
    attend(t.prefix_begin, 0, t.prefix, t.prefix);
    attend(t.begin, t.prefix, a.causal ? t.query_end : t.length, t.length);
    for (size_t n = 0; n < queries.size(); ++n) {
      QueryTile& x = queries[n];
      const int64_t k = static_cast<int64_t>(n), head = t.kv_head * group + k / (tiles / group);
      const int64_t row = t.begin + t.query_begin + k % (tiles / group) * tile.queries;
      f.finish(x, at(a.out.p, row * a.out.ld + head * d, a.out.type), a.out.ld,
               a.lse ? a.lse + head * tokens + row : nullptr);
    }
  });
}

// Keys are taken in tiles that start at multiples of 64 of the request's own positions, so a query meets the same tiles
// in the same order however the prompt was cut and whatever else is in the batch.
void cached_attention(const CachedAttention& a, float* lse) {
  check(a);
  constexpr int64_t kKeys = 64, kQueries = 64;
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads, size = static_cast<int64_t>(size_of(a.q.type));
  parallel_for(0, a.requests * a.kv_heads, 1, [&](int64_t i, int64_t) {
    const int64_t r = i / a.kv_heads, kv = i % a.kv_heads;
    const int64_t first = a.cu_q[r], count = a.cu_q[r + 1] - first, start = a.context[r] - count;
    if (count == 0) return;
    thread_local Arena arena;
    TileForward f(a.q.type, d, a.window, a.scale, kQueries, kKeys);
    // One token: its heads are the rows of one tile, when a tile holds them.
    const bool one = count == 1 && group <= kQueries;
    const int64_t tiles = one ? 1 : (count + kQueries - 1) / kQueries * group;
    const int64_t gathered = Arena::rounded(kKeys * d * size / 4 + 1);
    arena.reserve(f.units() + 2 * gathered + tiles * f.query_units());
    f.take(arena);
    char* k = arena.take<char>(gathered);
    char* v = arena.take<char>(gathered);
    thread_local std::vector<QueryTile> queries;
    queries.clear();
    for (int64_t n = 0; n < tiles; ++n) {
      const int64_t q = one ? 0 : n / group * kQueries, h = one ? 0 : n % group;
      QueryTile x;
      x.q = at(a.q.p, (first + q) * a.q.ld + (kv * group + h) * d, a.q.type), x.ld = one ? d : a.q.ld;
      x.rows = one ? group : std::min(kQueries, count - q), x.first_query = start + q, x.same_query = one;
      f.start(x, arena);
      queries.push_back(x);
    }
    auto page_at = [&](int64_t key) {
      return ((a.tables[r * a.max_pages + key / a.page] * a.kv_heads + kv) * a.page + key % a.page) * d * size;
    };
    for (int64_t key = f.first_tile(start) * kKeys; key < a.context[r]; key += kKeys) {
      // Pages lie anywhere, so the processor cannot guess the next ones.
      for (int64_t next = key + kKeys; next < std::min<int64_t>(key + 2 * kKeys, a.context[r]); next += a.page)
        for (int64_t line = 0, from = page_at(next); line < a.page * d * size; line += 64) {
          __builtin_prefetch(static_cast<const char*>(a.k_cache) + from + line);
          __builtin_prefetch(static_cast<const char*>(a.v_cache) + from + line);
        }
      const int64_t keys = std::min(kKeys, a.context[r] - key);
      for (int64_t s = 0; s < keys;) {
        const int64_t rows = std::min(keys - s, a.page - (key + s) % a.page), from = page_at(key + s);
        std::memcpy(k + s * d * size, static_cast<const char*>(a.k_cache) + from, static_cast<size_t>(rows * d * size));
        std::memcpy(v + s * d * size, static_cast<const char*>(a.v_cache) + from, static_cast<size_t>(rows * d * size));
        s += rows;
      }
      f.set_keys(k, d, v, d, key, keys);
      for (auto& x : queries)
        if (x.first_query + (one ? 1 : x.rows) > key && f.first_tile(x.first_query) * kKeys <= key) f.attend(x);
    }
    for (int64_t n = 0; n < tiles; ++n) {
      const int64_t q = one ? 0 : n / group * kQueries, h = one ? 0 : n % group;
      float of_rows[kQueries];
      QueryTile& x = queries[static_cast<size_t>(n)];
      f.finish(x, at(a.out.p, (first + q) * a.out.ld + (kv * group + h) * d, a.out.type), one ? d : a.out.ld,
               lse ? of_rows : nullptr);
      for (int64_t row = 0; lse && row < x.rows; ++row)
        lse[one ? (kv * group + row) * a.q.rows + first : (kv * group + h) * a.q.rows + first + q + row] = of_rows[row];
    }
  });
}

void store_cache(const StoreCache& c) {
  check(c);
  const size_t size = size_of(c.k.type), bytes = static_cast<size_t>(c.head_dim) * size;
  parallel_for(0, c.k.rows, 64, [&](int64_t b, int64_t e) {
    for (int64_t t = b; t < e; ++t) {
      if (c.slots[t] < 0) continue;
      const int64_t page = c.slots[t] / c.page, row = c.slots[t] % c.page;
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const size_t to = static_cast<size_t>((page * c.kv_heads + h) * c.page + row) * bytes;
        std::memcpy(static_cast<char*>(c.k_cache) + to, at(c.k.p, t * c.k.ld + h * c.head_dim, c.k.type), bytes);
        std::memcpy(static_cast<char*>(c.v_cache) + to, at(c.v.p, t * c.v.ld + h * c.head_dim, c.v.type), bytes);
      }
    }
  });
}

}  // namespace mxt::kernels::cpu
