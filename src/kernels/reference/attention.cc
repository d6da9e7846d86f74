#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

double dot(const ConstMat& a, int64_t ra, int64_t ca, const ConstMat& b, int64_t rb, int64_t cb, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += get(a, ra, ca + i) * get(b, rb, cb + i);
  return sum;
}

// First token that token t of a document (or of a cache) starting at `begin` sees.
int64_t first_seen(int64_t begin, int64_t t, int64_t window) {
  return window > 0 ? std::max(begin, t - window + 1) : begin;
}

// The factor of a weight: 1 without dropout.
template <typename A>
double kept(const A& a, int64_t head, int64_t t, int64_t s) {
  if (!(a.dropout > 0)) return 1;
  const auto threshold = static_cast<uint64_t>(static_cast<double>(a.dropout) * 0x1p32);
  s += a.first_row;
  const auto draws = philox4x32(a.seed, a.stream, attention_drop_index(head, a.first_row + t, s));
  const bool keep = draws[static_cast<size_t>(s % 4)] >= threshold;
  return keep ? 1.0 / (1.0 - static_cast<double>(a.dropout)) : 0.0;
}

// Calls f(t, rows, head) for every query row of every head: it sees `rows`, in the order of their positions.
template <typename A, typename F>
void for_each_query(const A& a, F f) {
  std::vector<int64_t> rows;
  for (int64_t doc = 0; doc < a.documents; ++doc) {
    const int64_t begin = a.cu_seqlens[doc], end = a.cu_seqlens[doc + 1];
    const int64_t before = a.prefix ? a.prefix[doc] : -1;
    for (int64_t t = begin; t < end; ++t) {
      rows.clear();
      if (before >= 0)  // as if its rows ended where the document begins
        for (int64_t s = a.cu_seqlens[before]; s < a.cu_seqlens[before + 1]; ++s)
          if (a.window <= 0 || t - (s + begin - a.cu_seqlens[before + 1]) < a.window) rows.push_back(s);
      const int64_t last = a.causal ? t : end - 1;
      for (int64_t s = first_seen(begin, t, a.window); s <= last; ++s) rows.push_back(s);
      for (int64_t h = 0; h < a.heads; ++h) f(t, rows, h);
    }
  }
}

}  // namespace

void attention(const Attention& a) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  std::vector<double> p;
  for_each_query(a, [&](int64_t t, const std::vector<int64_t>& rows, int64_t h) {
    const int64_t qc = h * d, kc = h / group * d;
    p.clear();
    double top = -INFINITY, sum = 0;
    for (const int64_t s : rows) {
      p.push_back(dot(a.q, t, qc, a.k, s, kc, d) * static_cast<double>(a.scale));
      top = std::max(top, p.back());
    }
    for (double& x : p) sum += x = std::exp(x - top);
    for (size_t n = 0; n < rows.size(); ++n) p[n] *= kept(a, h, t, rows[n]);
    for (int64_t i = 0; i < d; ++i) {
      double out = 0;
      for (size_t n = 0; n < rows.size(); ++n) out += p[n] * get(a.v, rows[n], kc + i);
      set(a.out, t, qc + i, out / sum);
    }
    if (a.lse) a.lse[h * a.q.rows + t] = static_cast<float>(top + std::log(sum));
  });
}

// With P = exp(S − lse), D = Σ_i dout·out:  dv = Pᵀ dout, dS = P ∘ (dout vᵀ − D), dq = scale·dS k, dk = scale·dSᵀ q
// (Dao 2023, FlashAttention-2, algorithm 2). Dropout multiplies P in dv and dout vᵀ in dS; D stays, since out went
// through it.
void attention_grad(const AttentionGrad& a) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads, tokens = a.q.rows;
  const auto q_size = static_cast<size_t>(tokens * a.heads * d), kv_size = static_cast<size_t>(tokens * a.kv_heads * d);
  std::vector<double> dq(q_size), dk(kv_size), dv(kv_size);
  for_each_query(a, [&](int64_t t, const std::vector<int64_t>& rows, int64_t h) {
    const int64_t qc = h * d, kc = h / group * d;
    const double scale = static_cast<double>(a.scale), lse = static_cast<double>(a.lse[h * tokens + t]);
    const double delta = dot(a.dout, t, qc, a.out, t, qc, d);
    for (const int64_t s : rows) {
      const double p = std::exp(dot(a.q, t, qc, a.k, s, kc, d) * scale - lse);
      const double keep = kept(a, h, t, s), ds = p * (dot(a.dout, t, qc, a.v, s, kc, d) * keep - delta) * scale;
      for (int64_t i = 0; i < d; ++i) {
        const auto at_q = static_cast<size_t>(t * a.heads * d + qc + i);
        const auto at_kv = static_cast<size_t>(s * a.kv_heads * d + kc + i);
        dv[at_kv] += p * keep * get(a.dout, t, qc + i);
        dq[at_q] += ds * get(a.k, s, kc + i);
        dk[at_kv] += ds * get(a.q, t, qc + i);
      }
    }
  });
  auto store = [&](const Mat& to, const std::vector<double>& from) {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < to.cols; ++i) set(to, t, i, from[static_cast<size_t>(t * to.cols + i)]);
  };
  store(a.dq, dq), store(a.dk, dk), store(a.dv, dv);
}

void cached_attention(const CachedAttention& a) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  std::vector<double> p;
  for (int64_t r = 0; r < a.requests; ++r) {
    const int64_t queries = a.cu_q[r + 1] - a.cu_q[r];
    auto cache_at = [&](int64_t s, int64_t kv_head) {  // element offset of cached token s's vector of one head
      const int64_t page = a.tables[r * a.max_pages + s / a.page];
      return ((page * a.kv_heads + kv_head) * a.page + s % a.page) * d;
    };
    for (int64_t j = 0; j < queries; ++j)
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t t = a.cu_q[r] + j, last = a.context[r] - queries + j, first = first_seen(0, last, a.window);
        p.clear();
        double top = -INFINITY, sum = 0;
        for (int64_t s = first; s <= last; ++s) {
          const int64_t at = cache_at(s, h / group);
          double score = 0;
          for (int64_t i = 0; i < d; ++i) score += get(a.q, t, h * d + i) * get(a.k_cache, a.q.type, at + i);
          p.push_back(score * static_cast<double>(a.scale));
          top = std::max(top, p.back());
        }
        for (double& x : p) sum += x = std::exp(x - top);
        for (int64_t i = 0; i < d; ++i) {
          double out = 0;
          for (int64_t s = first; s <= last; ++s)
            out += p[static_cast<size_t>(s - first)] * get(a.v_cache, a.q.type, cache_at(s, h / group) + i);
          set(a.out, t, h * d + i, out / sum);
        }
      }
  }
}

void store_cache(const StoreCache& c) {
  for (int64_t t = 0; t < c.k.rows; ++t) {
    if (c.slots[t] < 0) continue;
    const int64_t page = c.slots[t] / c.page, row = c.slots[t] % c.page;
    for (int64_t h = 0; h < c.kv_heads; ++h)
      for (int64_t i = 0; i < c.head_dim; ++i) {
        const int64_t at = ((page * c.kv_heads + h) * c.page + row) * c.head_dim + i;
        set(c.k_cache, c.k.type, at, get(c.k, t, h * c.head_dim + i));
        set(c.v_cache, c.v.type, at, get(c.v, t, h * c.head_dim + i));
      }
  }
}

}  // namespace mxt::kernels::reference
