#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::kernels::cpu {
namespace {

float get(const ConstMat& m, int64_t r, int64_t c) {
  return m.type == DType::kF32 ? static_cast<const float*>(m.p)[r * m.ld + c]
                               : bf16_to_float(static_cast<const uint16_t*>(m.p)[r * m.ld + c]);
}
void set(const Mat& m, int64_t r, int64_t c, float v) {
  if (m.type == DType::kF32)
    static_cast<float*>(m.p)[r * m.ld + c] = v;
  else
    static_cast<uint16_t*>(m.p)[r * m.ld + c] = float_to_bf16(v);
}
std::vector<float> load(const ConstMat& m, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out[static_cast<size_t>(r * cols + c)] = get(m, row + r, col + c);
  return out;
}
float dot(const float* a, const float* b, int64_t n) {
  float s = 0;
  for (int64_t i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

}  // namespace

std::vector<std::string> attention_algorithms() { return {"plain"}; }
size_t attention_scratch(const Attention&) { return 0; }
size_t attention_grad_scratch(const AttentionGrad&) { return 0; }

void attention(const Attention& a, Scratch) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  parallel_for(0, a.documents * a.heads, 1, [&](int64_t item, int64_t) {
    const int64_t doc = item / a.heads, h = item % a.heads, begin = a.cu_seqlens[doc], n = a.cu_seqlens[doc + 1] - begin;
    const auto q = load(a.q, begin, n, h * d, d), k = load(a.k, begin, n, h / group * d, d),
               v = load(a.v, begin, n, h / group * d, d);
    std::vector<float> p(static_cast<size_t>(n)), out(static_cast<size_t>(d));
    for (int64_t t = 0; t < n; ++t) {
      const int64_t first = a.window > 0 ? std::max<int64_t>(0, t - a.window + 1) : 0;
      float top = -INFINITY, sum = 0;
      for (int64_t s = first; s <= t; ++s) top = std::max(top, p[s] = a.scale * dot(&q[t * d], &k[s * d], d));
      std::fill(out.begin(), out.end(), 0.0f);
      for (int64_t s = first; s <= t; ++s) {
        sum += p[s] = std::exp(p[s] - top);
        for (int64_t i = 0; i < d; ++i) out[i] += p[s] * v[s * d + i];
      }
      for (int64_t i = 0; i < d; ++i) set(a.out, begin + t, h * d + i, out[i] / sum);
      if (a.lse) a.lse[h * a.q.rows + begin + t] = top + std::log(sum);
    }
  });
}

void attention_grad(const AttentionGrad& a, Scratch) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  parallel_for(0, a.documents * a.kv_heads, 1, [&](int64_t item, int64_t) {
    const int64_t doc = item / a.kv_heads, kv = item % a.kv_heads, begin = a.cu_seqlens[doc],
                  n = a.cu_seqlens[doc + 1] - begin;
    const auto k = load(a.k, begin, n, kv * d, d), v = load(a.v, begin, n, kv * d, d);
    std::vector<float> dk(static_cast<size_t>(n * d)), dv(static_cast<size_t>(n * d)), dq(static_cast<size_t>(d));
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const auto q = load(a.q, begin, n, h * d, d), out = load(a.out, begin, n, h * d, d),
                 dout = load(a.dout, begin, n, h * d, d);
      for (int64_t t = 0; t < n; ++t) {
        const float lse = a.lse[h * a.q.rows + begin + t], delta = dot(&dout[t * d], &out[t * d], d);
        std::fill(dq.begin(), dq.end(), 0.0f);
        for (int64_t s = a.window > 0 ? std::max<int64_t>(0, t - a.window + 1) : 0; s <= t; ++s) {
          const float p = std::exp(a.scale * dot(&q[t * d], &k[s * d], d) - lse);
          const float ds = a.scale * p * (dot(&dout[t * d], &v[s * d], d) - delta);
          for (int64_t i = 0; i < d; ++i) {
            dv[s * d + i] += p * dout[t * d + i];
            dk[s * d + i] += ds * q[t * d + i];
            dq[i] += ds * k[s * d + i];
          }
        }
        for (int64_t i = 0; i < d; ++i) set(a.dq, begin + t, h * d + i, dq[i]);
      }
    }
    for (int64_t t = 0; t < n; ++t)
      for (int64_t i = 0; i < d; ++i) {
        set(a.dk, begin + t, kv * d + i, dk[t * d + i]);
        set(a.dv, begin + t, kv * d + i, dv[t * d + i]);
      }
  });
}

void cached_attention(const CachedAttention& a, Scratch) {
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  parallel_for(0, a.requests * a.heads, 1, [&](int64_t item, int64_t) {
    const int64_t r = item / a.heads, h = item % a.heads, queries = a.cu_q[r + 1] - a.cu_q[r];
    std::vector<float> p(static_cast<size_t>(a.context[r])), out(static_cast<size_t>(d));
    auto at = [&](int64_t s) {
      const int64_t page = a.tables[r * a.max_pages + s / a.page];
      return (page * a.kv_heads + h / group) * a.page + s % a.page;
    };
    const ConstMat k(a.k_cache, 0, d, d, a.q.type), v(a.v_cache, 0, d, d, a.q.type);
    for (int64_t j = 0; j < queries; ++j) {
      const int64_t t = a.cu_q[r] + j, last = a.context[r] - queries + j,
                    first = a.window > 0 ? std::max<int64_t>(0, last - a.window + 1) : 0;
      float top = -INFINITY, sum = 0;
      for (int64_t s = first; s <= last; ++s) {
        float score = 0;
        for (int64_t i = 0; i < d; ++i) score += get(a.q, t, h * d + i) * get(k, at(s), i);
        top = std::max(top, p[s] = a.scale * score);
      }
      std::fill(out.begin(), out.end(), 0.0f);
      for (int64_t s = first; s <= last; ++s) {
        sum += p[s] = std::exp(p[s] - top);
        for (int64_t i = 0; i < d; ++i) out[i] += p[s] * get(v, at(s), i);
      }
      for (int64_t i = 0; i < d; ++i) set(a.out, t, h * d + i, out[i] / sum);
    }
  });
}

void store_cache(const StoreCache& c) {
  const size_t size = size_of(c.k.type), bytes = static_cast<size_t>(c.head_dim) * size;
  parallel_for(0, c.k.rows, 64, [&](int64_t b, int64_t e) {
    for (int64_t t = b; t < e; ++t) {
      if (c.slots[t] < 0) continue;
      const int64_t page = c.slots[t] / c.page, row = c.slots[t] % c.page;
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const size_t to = static_cast<size_t>((page * c.kv_heads + h) * c.page + row) * bytes;
        const size_t from = static_cast<size_t>(t * c.k.ld + h * c.head_dim) * size;
        std::memcpy(static_cast<char*>(c.k_cache) + to, static_cast<const char*>(c.k.p) + from, bytes);
        const size_t from_v = static_cast<size_t>(t * c.v.ld + h * c.head_dim) * size;
        std::memcpy(static_cast<char*>(c.v_cache) + to, static_cast<const char*>(c.v.p) + from_v, bytes);
      }
    }
  });
}

}  // namespace mxt::kernels::cpu
