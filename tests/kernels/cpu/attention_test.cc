// The CPU's attention, forward, backward and cached, against the reference and against itself on other thread counts.
#include "kernels/cpu/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/threads.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, d, window;
  DType type;
  std::string describe(const std::string& algo, const char* what) const {
    return fmt::format("{} {} documents {} heads {}/{} d {} window {} {}", algo, what, lengths.size(), heads, kv_heads,
                       d, window, name_of(type));
  }
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (DType t : {DType::kF32, DType::kBF16}) {
    out.push_back({{5, 1, 0, 70, 33, 129}, 9, 3, 64, 0, t});
    out.push_back({{200, 61, 256}, 3, 1, 64, 0, t});
    out.push_back({{64, 64, 64}, 4, 4, 32, 0, t});
    out.push_back({{300}, 4, 2, 128, 0, t});
    out.push_back({{150, 40}, 4, 2, 64, 17, t});
    out.push_back({{300, 2}, 2, 1, 64, 100, t});
    out.push_back({{37, 90}, 2, 2, 40, 0, t});
    out.push_back({{20, 66}, 2, 2, 7, 5, t});
    out.push_back({{70}, 2, 1, 256, 0, t});
    out.push_back({{1100, 20}, 2, 1, 32, 0, t});  // long enough to be cut for more threads
    out.push_back({{1100}, 1, 1, 32, 300, t});
  }
  return out;
}

struct Tensor {
  std::vector<uint8_t> bytes;
  Mat mat;
  Tensor(int64_t rows, int64_t cols, DType t, uint32_t seed) : bytes(static_cast<size_t>(rows * cols) * size_of(t)) {
    mat = {bytes.data(), rows, cols, cols, t};
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0, 1);
    for (int64_t i = 0; i < rows * cols; ++i) set(i, normal(rng));
  }
  Tensor(const Tensor& o) : bytes(o.bytes), mat(o.mat) { mat.p = bytes.data(); }
  void set(int64_t i, float v) {
    if (mat.type == DType::kF32)
      static_cast<float*>(mat.p)[i] = v;
    else
      static_cast<uint16_t*>(mat.p)[i] = float_to_bf16(v);
  }
  float get(int64_t i) const {
    return mat.type == DType::kF32 ? static_cast<const float*>(mat.p)[i]
                                   : bf16_to_float(static_cast<const uint16_t*>(mat.p)[i]);
  }
  Mat columns(int64_t from, int64_t count) const {
    return {static_cast<char*>(mat.p) + static_cast<size_t>(from) * size_of(mat.type), mat.rows, count, mat.ld,
            mat.type};
  }
};

struct Result {
  Tensor qkv, out, dout, dqkv;
  std::vector<float> lse;
};

struct Memory {
  std::vector<uint8_t> bytes;
  cpu::Scratch of(size_t n) {
    bytes.assign(n + 64, 0xff);  // undefined contents: here NaN
    return {bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64, n};
  }
};

Result run(const Case& s, int algo, bool reference) {
  std::vector<int32_t> cu{0};
  for (int32_t n : s.lengths) cu.push_back(cu.back() + n);
  const int64_t t = cu.back(), hq = s.heads * s.d, hk = s.kv_heads * s.d;
  Result r{Tensor(t, hq + 2 * hk, s.type, 1), Tensor(t, hq, s.type, 2), Tensor(t, hq, s.type, 3),
           Tensor(t, hq + 2 * hk, s.type, 4), std::vector<float>(static_cast<size_t>(s.heads * t))};
  const float scale = 1 / std::sqrt(static_cast<float>(s.d));
  Memory memory;
  Attention a;
  a.q = r.qkv.columns(0, hq), a.k = r.qkv.columns(hq, hk), a.v = r.qkv.columns(hq + hk, hk);
  a.out = r.out.mat, a.lse = r.lse.data(), a.cu_seqlens = cu.data();
  a.documents = static_cast<int64_t>(s.lengths.size()), a.heads = s.heads, a.kv_heads = s.kv_heads, a.head_dim = s.d;
  a.window = s.window, a.scale = scale, a.algo = algo;
  reference ? reference::attention(a) : cpu::attention(a, memory.of(cpu::attention_scratch(a)));
  AttentionGrad g;
  g.q = a.q, g.k = a.k, g.v = a.v, g.out = a.out, g.dout = r.dout.mat, g.lse = a.lse;
  g.dq = r.dqkv.columns(0, hq), g.dk = r.dqkv.columns(hq, hk), g.dv = r.dqkv.columns(hq + hk, hk);
  g.cu_seqlens = cu.data(), g.documents = a.documents, g.heads = s.heads, g.kv_heads = s.kv_heads, g.head_dim = s.d;
  g.window = s.window, g.scale = scale, g.algo = algo;
  reference ? reference::attention_grad(g) : cpu::attention_grad(g, memory.of(cpu::attention_grad_scratch(g)));
  return r;
}

// Largest difference, and the root mean square one, relative to the reference's root mean square.
void expect_near(const Tensor& got, const Tensor& want, double largest, double typical, const std::string& what) {
  double worst = 0, square = 0, size = 0;
  const auto n = want.mat.rows * want.mat.cols;
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(std::isfinite(got.get(i))) << what << " at " << i;
    const double e = got.get(i) - want.get(i);
    worst = std::max(worst, std::abs(e)), square += e * e, size += static_cast<double>(want.get(i)) * want.get(i);
  }
  const double rms = std::sqrt(size / static_cast<double>(n));
  EXPECT_LT(std::sqrt(square / static_cast<double>(n)), typical * rms) << what;
  EXPECT_LT(worst, largest * rms) << what;
}

TEST(CpuAttention, EveryCandidateAgreesWithTheReferenceForwardAndBackward) {
  set_num_threads(2);
  const auto names = cpu::attention_algorithms();
  for (const auto& s : cases()) {
    const Result want = run(s, 0, true);
    const bool bf16 = s.type == DType::kBF16;
    for (size_t algo = 0; algo < names.size(); ++algo) {
      const Result got = run(s, static_cast<int>(algo), false);
      expect_near(got.out, want.out, bf16 ? 0.06 : 2e-5, bf16 ? 6e-3 : 2e-6, s.describe(names[algo], "out"));
      expect_near(got.dqkv, want.dqkv, bf16 ? 0.15 : 1e-4, bf16 ? 1e-2 : 5e-6, s.describe(names[algo], "dqkv"));
      for (size_t i = 0; i < want.lse.size(); ++i)
        ASSERT_NEAR(got.lse[i], want.lse[i], bf16 ? 2e-5 : 5e-6) << s.describe(names[algo], "lse");
    }
  }
}

TEST(CpuAttention, BitsDoNotDependOnTheNumberOfThreads) {
  const auto names = cpu::attention_algorithms();
  for (const auto& s : cases())
    for (size_t algo = 0; algo < names.size(); ++algo) {
      set_num_threads(1);
      const Result one = run(s, static_cast<int>(algo), false);
      for (int threads : {2, 4}) {
        set_num_threads(threads);
        const Result many = run(s, static_cast<int>(algo), false);
        ASSERT_EQ(many.out.bytes, one.out.bytes) << s.describe(names[algo], "out");
        ASSERT_EQ(many.dqkv.bytes, one.dqkv.bytes) << s.describe(names[algo], "dqkv");
        ASSERT_EQ(many.lse, one.lse) << s.describe(names[algo], "lse");
      }
    }
  set_num_threads(2);
}

// Requests in a paged cache, pages handed out in a shuffled order.
struct Paged {
  int64_t heads, kv_heads, d, page, window;
  DType type;
  std::vector<int32_t> context;
  int64_t max_pages = 0;
  std::vector<int32_t> tables;
  Tensor k, v, k_cache, v_cache;

  static int64_t sum(const std::vector<int32_t>& v) {
    int64_t s = 0;
    for (int32_t x : v) s += x;
    return s;
  }
  Paged(int64_t heads_, int64_t kv_heads_, int64_t d_, int64_t page_, int64_t window_, DType t,
        std::vector<int32_t> context_)
      : heads(heads_),
        kv_heads(kv_heads_),
        d(d_),
        page(page_),
        window(window_),
        type(t),
        context(std::move(context_)),
        max_pages(*std::max_element(context.begin(), context.end()) / page + 1),
        k(sum(context), kv_heads * d, t, 11),
        v(sum(context), kv_heads * d, t, 12),
        k_cache(static_cast<int64_t>(context.size()) * max_pages * kv_heads * page, d, t, 13),
        v_cache(static_cast<int64_t>(context.size()) * max_pages * kv_heads * page, d, t, 14) {
    tables.resize(context.size() * static_cast<size_t>(max_pages));
    for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<int32_t>(i);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(5));
    std::vector<int32_t> slots;
    for (size_t r = 0; r < context.size(); ++r)
      for (int32_t s = 0; s < context[r]; ++s)
        slots.push_back(static_cast<int32_t>(
            tables[r * static_cast<size_t>(max_pages) + static_cast<size_t>(s / page)] * page + s % page));
    StoreCache c;
    c.k = k.mat, c.v = v.mat, c.k_cache = k_cache.mat.p, c.v_cache = v_cache.mat.p, c.slots = slots.data();
    c.page = page, c.kv_heads = kv_heads, c.head_dim = d;
    cpu::store_cache(c);
  }
  // The last queries[i] tokens of requests `which`, in one call.
  Tensor attend(const std::vector<int>& which, const std::vector<int32_t>& queries, const std::vector<int32_t>& upto,
                const Tensor& all_q, bool reference) {
    std::vector<int32_t> cu{0}, table;
    for (int32_t n : queries) cu.push_back(cu.back() + n);
    Tensor q(cu.back(), heads * d, type, 1), out(cu.back(), heads * d, type, 2);
    for (size_t i = 0; i < which.size(); ++i) {
      table.insert(table.end(), tables.begin() + which[i] * max_pages, tables.begin() + (which[i] + 1) * max_pages);
      int64_t first = 0;
      for (int r = 0; r < which[i]; ++r) first += context[static_cast<size_t>(r)];
      for (int64_t j = 0; j < queries[i]; ++j)
        for (int64_t c = 0; c < heads * d; ++c)
          q.set((cu[i] + j) * heads * d + c, all_q.get((first + upto[i] - queries[i] + j) * heads * d + c));
    }
    CachedAttention a;
    a.q = q.mat, a.out = out.mat, a.k_cache = k_cache.mat.p, a.v_cache = v_cache.mat.p;
    a.cu_q = cu.data(), a.context = upto.data(), a.tables = table.data();
    a.requests = static_cast<int64_t>(which.size()), a.max_pages = max_pages, a.page = page;
    a.heads = heads, a.kv_heads = kv_heads, a.head_dim = d, a.window = window,
    a.scale = 1 / std::sqrt(static_cast<float>(d));
    reference ? reference::cached_attention(a) : cpu::cached_attention(a, {});
    return out;
  }
};

std::vector<Paged> paged() {
  std::vector<Paged> out;
  for (DType t : {DType::kF32, DType::kBF16}) {
    out.emplace_back(9, 3, 64, 16, 0, t, std::vector<int32_t>{40, 1, 130});
    out.emplace_back(4, 2, 128, 32, 20, t, std::vector<int32_t>{100, 33});
    out.emplace_back(2, 1, 40, 7, 0, t, std::vector<int32_t>{50, 90});
  }
  return out;
}

TEST(CpuCachedAttention, AgreesWithTheReference) {
  for (auto& p : paged()) {
    const Tensor q(Paged::sum(p.context), p.heads * p.d, p.type, 21);
    std::vector<int> which;
    std::vector<int32_t> queries;
    for (size_t i = 0; i < p.context.size(); ++i) {
      which.push_back(static_cast<int>(i));
      queries.push_back(i % 2 == 0 ? p.context[i] : 1);
    }
    const Tensor got = p.attend(which, queries, p.context, q, false),
                 want = p.attend(which, queries, p.context, q, true);
    const bool bf16 = p.type == DType::kBF16;
    expect_near(got, want, bf16 ? 0.05 : 2e-5, bf16 ? 5e-3 : 2e-6, fmt::format("d {} page {}", p.d, p.page));
  }
}

TEST(CpuCachedAttention, BitsDoNotDependOnTheBatchTheChunksOrTheThreads) {
  for (auto& p : paged()) {
    const Tensor q(Paged::sum(p.context), p.heads * p.d, p.type, 21);
    const int32_t n = p.context[0];
    set_num_threads(1);
    const Tensor whole = p.attend({0}, {n}, {n}, q, false);
    const size_t row = static_cast<size_t>(p.heads * p.d) * size_of(p.type);
    auto same = [&](const Tensor& part, size_t part_row, int32_t from, int32_t count) {
      EXPECT_EQ(std::vector<uint8_t>(part.bytes.begin() + static_cast<ptrdiff_t>(part_row * row),
                                     part.bytes.begin() + static_cast<ptrdiff_t>((part_row + count) * row)),
                std::vector<uint8_t>(whole.bytes.begin() + static_cast<ptrdiff_t>(from * row),
                                     whole.bytes.begin() + static_cast<ptrdiff_t>((from + count) * row)))
          << "tokens " << from << " to " << from + count << " d " << p.d;
    };
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      for (int32_t chunk : {1, 3, 17})
        for (int32_t from = 0; from < n; from += chunk) {
          const int32_t count = std::min(chunk, n - from);
          same(p.attend({0}, {count}, {from + count}, q, false), 0, from, count);
        }
      same(p.attend({1, 0}, {p.context[1], 2}, {p.context[1], n}, q, false), static_cast<size_t>(p.context[1]), n - 2,
           2);
    }
  }
  set_num_threads(2);
}

}  // namespace
}  // namespace mxt::kernels
