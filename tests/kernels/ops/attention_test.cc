#include <fmt/format.h>

#include <cmath>

#include "kernels/harness.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(AttentionOps);

struct Case {
  std::vector<int32_t> cu;
  int64_t heads, kv_heads, head_dim, window;
  float dropout = 0;
  std::vector<int32_t> prefix = {};
};
const Case kCases[] = {
    {{0, 1}, 1, 1, 8, 0},
    {{0, 7}, 3, 1, 8, 0},              // one kv head for all
    {{0, 1, 2, 40, 65}, 4, 2, 64, 0},  // documents, two of length 1
    {{0, 33, 33, 70}, 2, 2, 80, 0},    // an empty document
    {{0, 130}, 2, 1, 128, 0},
    {{0, 50, 90}, 2, 1, 256, 0},
    {{0, 50, 97}, 4, 2, 16, 5},  // sliding window
    {{0, 97}, 2, 1, 8, 1},       // sees itself only
    {{0, 97, 200}, 1, 1, 64, 64},
    {{0, 3, 97, 230}, 4, 2, 64, 0, 0.2f},  // dropout of the weights
    {{0, 81}, 2, 1, 16, 30, 0.5f},
    // Documents that go on from another: with groups and others between, windows that end in it, one token each, and
    // keys so many that they are cut.
    {{0, 40, 70, 75, 110}, 4, 2, 64, 0, 0, {-1, 0, 0, -1}},
    {{0, 33, 34, 90, 131, 140, 200}, 3, 1, 16, 20, 0, {-1, 0, 0, -1, 3, 3}},
    {{0, 5, 150, 151, 152}, 2, 1, 80, 7, 0, {-1, 0, 0, 0}},
    {{0, 520, 560, 600}, 1, 1, 8, 0, 0, {-1, 0, 0}},
    {{0, 90, 610}, 1, 1, 8, 300, 0, {-1, 0}},
    // Tiles of keys that nobody between sees, prefixes that end amid a tile, and an empty one.
    {{0, 150, 220, 221, 260, 270, 400}, 2, 1, 128, 0, 0, {-1, 0, 0, 0, -1, 4}},
    {{0, 70, 150, 280, 300, 301}, 2, 1, 64, 100, 0, {-1, 0, 0, 0, -1}},
    {{0, 0, 70, 200}, 2, 1, 64, 0, 0, {-1, 0, 0}},
};

template <typename A>
void common(Trial& r, A& a, const Case& c) {
  a.cu_seqlens = r.ints(c.cu);
  a.documents = static_cast<int64_t>(c.cu.size()) - 1;
  a.heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim, a.window = c.window;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (!c.prefix.empty()) a.prefix = r.ints(c.prefix);
  a.dropout = c.dropout, a.seed = 5, a.stream = 9, a.first_row = c.head_dim == 64 ? 1001 : 0;
}

// Column blocks of one matrix.
template <typename M>
M block(const M& m, int64_t first, int64_t cols) {
  M out = m;
  const auto offset = static_cast<size_t>(first) * size_of(m.type);
  if constexpr (std::is_same_v<M, Mat>)
    out.p = static_cast<char*>(m.p) + offset;
  else
    out.p = static_cast<const char*>(m.p) + offset;
  out.cols = cols;
  return out;
}

std::string describe(const Case& c, DType type, int algo) {
  return fmt::format("{} h{} kv{} d{} docs {} from {} window {} dropout {} algo {}", label(type), c.heads, c.kv_heads,
                     c.head_dim, fmt::join(c.cu, ","), fmt::join(c.prefix, ","), c.window, c.dropout, algo);
}

TEST_P(AttentionOps, ForwardAndItsStatistics) {
  const auto algorithms = static_cast<int>(GetParam().ops->attention_algorithms().size());
  ASSERT_GE(algorithms, 1);
  for (int algo = 0; algo < algorithms; ++algo)
    for (DType type : kTypes)
      for (const Case& c : kCases) {
        SCOPED_TRACE(describe(c, type, algo));
        check_op(GetParam(),
                 [&](Trial& r) {
                   const int64_t tokens = c.cu.back(), q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
                   Attention a;
                   common(r, a, c);
                   const ConstMat qkv = r.input(tokens, q + 2 * kv, type, 1, 1.5);
                   a.q = block(qkv, 0, q), a.k = block(qkv, q, kv), a.v = block(qkv, q + kv, kv);
                   a.out = r.output("out", tokens, q, type);
                   a.lse = r.output_floats("lse", c.heads * tokens);
                   a.algo = r.ops().name() == "reference" ? 0 : algo;
                   r.scratch(r.ops().attention_scratch(a));
                   r.ops().attention(a);
                 },
                 {1e-4, type == DType::kF32 ? 2e-5 : 1e-2});
      }
}

TEST_P(AttentionOps, Gradient) {
  const auto algorithms = static_cast<int>(GetParam().ops->attention_algorithms().size());
  for (int algo = 0; algo < algorithms; ++algo)
    for (DType type : kTypes)
      for (const Case& c : kCases) {
        SCOPED_TRACE(describe(c, type, algo));
        check_op(GetParam(),
                 [&](Trial& r) {
                   const int64_t tokens = c.cu.back(), q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
                   AttentionGrad g;
                   common(r, g, c);
                   const ConstMat qkv = r.input(tokens, q + 2 * kv, type, 1, 1.5);
                   g.q = block(qkv, 0, q), g.k = block(qkv, q, kv), g.v = block(qkv, q + kv, kv);
                   g.dout = r.input(tokens, q, type, 2);
                   // out and lse: the reference's, computed on a host copy of the same inputs.
                   Trial host(reference_backend());
                   Attention a;
                   common(host, a, c);
                   const ConstMat same = host.input(tokens, q + 2 * kv, type, 1, 1.5);
                   a.q = block(same, 0, q), a.k = block(same, q, kv), a.v = block(same, q + kv, kv);
                   a.out = host.output("out", tokens, q, type);
                   a.lse = host.output_floats("lse", c.heads * tokens);
                   reference::attention(a);
                   g.lse = r.floats({a.lse, a.lse + c.heads * tokens});
                   g.out = r.values(host.read(ConstMat(a.out)), tokens, q, type);
                   const Mat dqkv = r.output("dqkv", tokens, q + 2 * kv, type);
                   g.dq = block(dqkv, 0, q), g.dk = block(dqkv, q, kv), g.dv = block(dqkv, q + kv, kv);
                   g.algo = r.ops().name() == "reference" ? 0 : algo;
                   r.scratch(r.ops().attention_grad_scratch(g));
                   r.ops().attention_grad(g);
                 },
                 {1e-4, type == DType::kF32 ? 1e-4 : 5e-2});
      }
}

// What a document goes on from, written out before each that does: the same results, and the copies' gradients of k and
// v add up to those of the one.
TEST_P(AttentionOps, GoingOnFromADocumentIsHavingItBefore) {
  for (const Case& c : kCases) {
    if (c.prefix.empty()) continue;
    SCOPED_TRACE(describe(c, DType::kF32, 0));
    Case apart = c;
    apart.prefix.clear();
    apart.cu = {0};
    std::vector<int64_t> from;  // of each row that is written out, the one that it is a copy of
    std::vector<bool> own;
    for (size_t i = 0; i + 1 < c.cu.size(); ++i) {
      if (c.prefix[i] >= 0)
        for (int64_t t = c.cu[static_cast<size_t>(c.prefix[i])]; t < c.cu[static_cast<size_t>(c.prefix[i]) + 1]; ++t)
          from.push_back(t), own.push_back(false);
      for (int64_t t = c.cu[i]; t < c.cu[i + 1]; ++t) from.push_back(t), own.push_back(true);
      apart.cu.push_back(static_cast<int32_t>(from.size()));
    }
    const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim, wide = q + 2 * kv;
    const auto run_both = [&](const Case& of, const std::vector<double>& qkv, const std::vector<double>& dout) {
      Trial r(GetParam());
      const int64_t tokens = of.cu.back();
      const ConstMat x = r.values(qkv, tokens, wide, DType::kF32);
      Attention a;
      common(r, a, of);
      a.q = block(x, 0, q), a.k = block(x, q, kv), a.v = block(x, q + kv, kv);
      a.out = r.output("out", tokens, q, DType::kF32);
      a.lse = r.output_floats("lse", c.heads * tokens);
      r.scratch(r.ops().attention_scratch(a));
      r.ops().attention(a);
      AttentionGrad g;
      common(r, g, of);
      g.q = a.q, g.k = a.k, g.v = a.v, g.out = a.out, g.lse = a.lse;
      g.dout = r.values(dout, tokens, q, DType::kF32);
      const Mat d = r.output("dqkv", tokens, wide, DType::kF32);
      g.dq = block(d, 0, q), g.dk = block(d, q, kv), g.dv = block(d, q + kv, kv);
      r.scratch(r.ops().attention_grad_scratch(g));
      r.ops().attention_grad(g);
      return std::pair{r.read(ConstMat(a.out)), r.read(ConstMat(d))};
    };
    Trial given(reference_backend());
    const auto values = [&](int64_t cols, uint64_t seed) {
      return given.read(given.input(c.cu.back(), cols, DType::kF32, seed));
    };
    const std::vector<double> qkv = values(wide, 1), dout = values(q, 2);
    std::vector<double> qkv_apart, dout_apart;
    for (size_t t = 0; t < from.size(); ++t) {
      const auto row = [&](const std::vector<double>& v, int64_t cols) { return v.begin() + from[t] * cols; };
      qkv_apart.insert(qkv_apart.end(), row(qkv, wide), row(qkv, wide) + wide);
      if (own[t])
        dout_apart.insert(dout_apart.end(), row(dout, q), row(dout, q) + q);
      else  // a copy's own result is nobody's
        dout_apart.insert(dout_apart.end(), static_cast<size_t>(q), 0.0);
    }
    const auto [out, dqkv] = run_both(c, qkv, dout);
    const auto [out_apart, dqkv_apart] = run_both(apart, qkv_apart, dout_apart);
    std::vector<double> sums(dqkv.size());
    for (size_t t = 0; t < from.size(); ++t) {
      for (int64_t i = 0; i < wide; ++i)
        sums[static_cast<size_t>(from[t] * wide + i)] +=
            dqkv_apart[t * static_cast<size_t>(wide) + static_cast<size_t>(i)];
      for (int64_t i = 0; own[t] && i < q; ++i)
        ASSERT_NEAR(out[static_cast<size_t>(from[t] * q + i)],
                    out_apart[t * static_cast<size_t>(q) + static_cast<size_t>(i)], 2e-6);
    }
    for (size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(dqkv[i], sums[i], 2e-5) << i;
  }
}

struct CacheCase {
  int64_t heads, kv_heads, head_dim, page, window;
  std::vector<int32_t> queries, context;
};
const CacheCase kCacheCases[] = {
    {1, 1, 8, 4, 0, {1}, {1}},
    {9, 3, 64, 16, 0, {1, 1, 1}, {1, 17, 130}},
    {4, 1, 80, 8, 0, {5, 1, 40}, {5, 33, 64}},  // a prompt, a decode, the rest of a prompt
    {4, 2, 128, 16, 20, {3, 1}, {50, 70}},
};

// Encoders and pictures: every token of a document sees all of it.
TEST_P(AttentionOps, ToBothSides) {
  const std::vector<std::string> names = GetParam().ops->attention_algorithms();
  const auto algorithms = static_cast<int>(names.size());
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.push_back({{0, 700}, 2, 1, 8, 0});  // so long that its keys and queries are cut
  for (int algo = 0; algo < algorithms; ++algo) {
    // Others keep lse as suits them; their two halves are compared in tests/gpu/attention_test.cc.
    if (GetParam().ops->device() != nullptr && names[static_cast<size_t>(algo)] != "plain") continue;
    for (DType type : kTypes)
      for (const Case& c : cases) {
        if (c.window > 0 || c.dropout > 0 || !c.prefix.empty()) continue;
        SCOPED_TRACE(describe(c, type, algo));
        check_op(GetParam(),
                 [&](Trial& r) {
                   const int64_t tokens = c.cu.back(), q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
                   Trial host(reference_backend());
                   Attention a;
                   common(host, a, c);
                   a.causal = false;
                   const ConstMat same = host.input(tokens, q + 2 * kv, type, 1, 1.5);
                   a.q = block(same, 0, q), a.k = block(same, q, kv), a.v = block(same, q + kv, kv);
                   a.out = host.output("out", tokens, q, type);
                   a.lse = host.output_floats("lse", c.heads * tokens);
                   reference::attention(a);
                   AttentionGrad g;
                   common(r, g, c);
                   g.causal = false;
                   const ConstMat qkv = r.input(tokens, q + 2 * kv, type, 1, 1.5);
                   g.q = block(qkv, 0, q), g.k = block(qkv, q, kv), g.v = block(qkv, q + kv, kv);
                   g.dout = r.input(tokens, q, type, 2);
                   g.lse = r.floats({a.lse, a.lse + c.heads * tokens});
                   g.out = r.values(host.read(ConstMat(a.out)), tokens, q, type);
                   const Mat dqkv = r.output("dqkv", tokens, q + 2 * kv, type);
                   g.dq = block(dqkv, 0, q), g.dk = block(dqkv, q, kv), g.dv = block(dqkv, q + kv, kv);
                   g.algo = r.ops().name() == "reference" ? 0 : algo;
                   r.scratch(r.ops().attention_grad_scratch(g));
                   r.ops().attention_grad(g);
                 },
                 {1e-4, type == DType::kF32 ? 1e-4 : 5e-2});
      }
  }
}

TEST_P(AttentionOps, CachedAttentionReadsPages) {
  for (DType type : kTypes)
    for (const CacheCase& c : kCacheCases) {
      SCOPED_TRACE(fmt::format("{} h{} kv{} d{} page {}", label(type), c.heads, c.kv_heads, c.head_dim, c.page));
      check_op(GetParam(),
               [&](Trial& r) {
                 std::vector<int32_t> cu{0}, tables;
                 const auto requests = static_cast<int64_t>(c.queries.size());
                 const int64_t max_pages = 12;
                 for (size_t i = 0; i < c.queries.size(); ++i) {
                   cu.push_back(cu.back() + c.queries[i]);
                   for (int64_t p = 0; p < max_pages; ++p)  // pages of the requests interleaved, backwards
                     tables.push_back(static_cast<int32_t>((max_pages - 1 - p) * requests + static_cast<int64_t>(i)));
                 }
                 const int64_t cache = max_pages * requests * c.kv_heads * c.page * c.head_dim;
                 CachedAttention a;
                 a.q = r.input(cu.back(), c.heads * c.head_dim, type, 1, 1.5);
                 a.out = r.output("out", cu.back(), c.heads * c.head_dim, type);
                 a.k_cache = r.param(cache, type, 2);
                 a.v_cache = r.param(cache, type, 3);
                 a.cu_q = r.ints(cu);
                 a.context = r.ints(c.context);
                 a.tables = r.ints(tables);
                 a.requests = requests, a.max_pages = max_pages, a.page = c.page;
                 a.heads = c.heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim, a.window = c.window;
                 a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
                 r.scratch(1 << 22);
                 r.ops().cached_attention(a);
               },
               {1e-4, type == DType::kF32 ? 2e-5 : 1e-2});
    }
}

TEST_P(AttentionOps, StoreCacheSkipsTokensWithoutASlot) {
  for (DType type : kTypes)
    check_op(GetParam(),
             [&](Trial& r) {
               StoreCache s;
               s.kv_heads = 3, s.head_dim = 80, s.page = 4;
               s.k = r.input(5, 240, type, 1);
               s.v = r.input(5, 240, type, 2);
               s.k_cache = r.inout_bytes("k", 3 * 4 * 240, type, 3);
               s.v_cache = r.inout_bytes("v", 3 * 4 * 240, type, 4);
               s.slots = r.ints({11, -1, 0, 5, 4});
               r.ops().store_cache(s);
             },
             {0, 0});
}

}  // namespace
}  // namespace mxt::kernels::test
