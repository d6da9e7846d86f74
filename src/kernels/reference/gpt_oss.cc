#include "kernels/gpt_oss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
// ln(eᵃ + eᵇ)
double log_add(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

}  // namespace

void attention_sinks(const AttentionSinks& a) {
  const int64_t tokens = a.out.rows, d = a.out.cols / a.heads;
  for (int64_t h = 0; h < a.heads; ++h)
    for (int64_t t = 0; t < tokens; ++t) {
      float& lse = a.lse[h * tokens + t];
      const double all = log_add(static_cast<double>(lse), static_cast<double>(a.sinks[h]));
      const double part = std::exp(static_cast<double>(lse) - all);
      for (int64_t i = h * d; i < (h + 1) * d; ++i) set(a.out, t, i, part * get(ConstMat(a.out), t, i));
      lse = static_cast<float>(all);
    }
}

void attention_sinks_grad(const AttentionSinksGrad& a) {
  const int64_t tokens = a.out.rows, d = a.out.cols / a.heads;
  for (int64_t h = 0; h < a.heads; ++h) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      double dot = 0;
      for (int64_t i = h * d; i < (h + 1) * d; ++i) dot += get(a.dout, t, i) * get(a.out, t, i);
      sum -= std::exp(static_cast<double>(a.sinks[h]) - static_cast<double>(a.lse[h * tokens + t])) * dot;
    }
    a.dsinks[h] = static_cast<float>(sum + (a.accumulate ? static_cast<double>(a.dsinks[h]) : 0.0));
  }
}

void cached_sinks(const CachedSinks& c) {
  const CachedAttention& a = c.of;
  cached_attention(a);
  const int64_t d = a.head_dim, group = a.heads / a.kv_heads;
  for (int64_t r = 0; r < a.requests; ++r) {
    const int64_t queries = a.cu_q[r + 1] - a.cu_q[r];
    for (int64_t j = 0; j < queries; ++j)
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t t = a.cu_q[r] + j, last = a.context[r] - queries + j;
        double lse = -INFINITY;
        for (int64_t s = a.window > 0 ? std::max<int64_t>(0, last - a.window + 1) : 0; s <= last; ++s) {
          const int64_t page = a.tables[r * a.max_pages + s / a.page];
          const int64_t at = ((page * a.kv_heads + h / group) * a.page + s % a.page) * d;
          double score = 0;
          for (int64_t i = 0; i < d; ++i) score += get(a.q, t, h * d + i) * get(a.k_cache, a.q.type, at + i);
          lse = log_add(lse, score * static_cast<double>(a.scale));
        }
        const double part = std::exp(lse - log_add(lse, static_cast<double>(c.sinks[h])));
        for (int64_t i = h * d; i < (h + 1) * d; ++i) set(a.out, t, i, part * get(ConstMat(a.out), t, i));
      }
  }
}

void clamped_glu(const ClampedGlu& g) {
  const double alpha = static_cast<double>(g.alpha), limit = static_cast<double>(g.limit);
  for (int64_t t = 0; t < g.y.rows; ++t)
    for (int64_t i = 0; i < g.y.cols; ++i) {
      const double gate = std::min(get(g.x, t, i), limit), up = std::clamp(get(g.x, t, g.y.cols + i), -limit, limit);
      set(g.y, t, i, (up + 1) * gate * sigmoid(alpha * gate));
    }
}

void clamped_glu_grad(const ClampedGluGrad& g) {
  const double alpha = static_cast<double>(g.alpha), limit = static_cast<double>(g.limit);
  for (int64_t t = 0; t < g.dy.rows; ++t)
    for (int64_t i = 0; i < g.dy.cols; ++i) {
      const double x = get(g.x, t, i), z = get(g.x, t, g.dy.cols + i), dy = get(g.dy, t, i);
      const double gate = std::min(x, limit), up = std::clamp(z, -limit, limit), s = sigmoid(alpha * gate);
      set(g.dx, t, i, x <= limit ? dy * (up + 1) * s * (1 + alpha * gate * (1 - s)) : 0.0);
      set(g.dx, t, g.dy.cols + i, z >= -limit && z <= limit ? dy * gate * s : 0.0);
    }
}

void expert_bias(const ExpertBias& b) {
  for (int64_t e = 0; e < b.experts; ++e)
    for (int64_t r = b.first[e]; r < b.first[e + 1]; ++r)
      for (int64_t i = 0; i < b.y.cols; ++i)
        set(b.y, r, i, get(ConstMat(b.y), r, i) + get(b.bias, 0, e * b.y.cols + i));
}

void expert_bias_grad(const ExpertBiasGrad& b) {
  std::vector<double> sum(static_cast<size_t>(b.experts * b.dy.cols));
  for (int64_t e = 0; e < b.experts; ++e)
    for (int64_t r = b.first[e]; r < b.first[e + 1]; ++r)
      for (int64_t i = 0; i < b.dy.cols; ++i) sum[static_cast<size_t>(e * b.dy.cols + i)] += get(b.dy, r, i);
  add_into(b.dbias, sum, b.accumulate);
}

}  // namespace mxt::kernels::reference
