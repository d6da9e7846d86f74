#include "kernels/gpt_oss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/gpt_oss.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// A head's part of a row times e^(lse − lse'), lse' written over lse.
template <typename T>
void sinks_rows_of(const AttentionSinks& a, int64_t begin, int64_t end) {
  const int64_t tokens = a.out.rows, d = a.out.cols / a.heads;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < a.heads; ++h) {
      float& lse = a.lse[h * tokens + t];
      const float sink = a.sinks[h], top = std::max(lse, sink);
      float all = top + std::log1p(std::exp(std::min(lse, sink) - top));
      if (!(sink < INFINITY)) all = NAN;  // comparisons pass over what is no number
      const V part = splat(std::exp(lse - all));
      T* o = row_at<T>(a.out, t) + h * d;
      for_each(d, [&](int64_t i, auto w) HWY_ATTR { store(hn::Mul(load(o + i, w), part), o + i, w); });
      lse = all;
    }
}

template <typename T>
void sinks_grad_rows_of(const AttentionSinksGrad& a, int64_t begin, int64_t end) {
  const int64_t tokens = a.out.rows, d = a.out.cols / a.heads;
  for (int64_t h = begin; h < end; ++h) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const T *o = row_at<T>(a.out, t) + h * d, *g = row_at<T>(a.dout, t) + h * d;
      const Sum dot = reduce<Sum>(
          d, [&](int64_t i, auto w, Sum& s) HWY_ATTR { s.v = hn::MulAdd(load(g + i, w), load(o + i, w), s.v); });
      sum -= static_cast<double>(std::exp(a.sinks[h] - a.lse[h * tokens + t])) * static_cast<double>(dot.total());
    }
    a.dsinks[h] = static_cast<float>(sum) + (a.accumulate ? a.dsinks[h] : 0.0f);
  }
}

// NaN is neither above a bound nor below it, and stays.
HWY_INLINE V at_most(V x, V limit) { return hn::IfThenElse(hn::Gt(x, limit), limit, x); }
HWY_INLINE V at_least(V x, V limit) { return hn::IfThenElse(hn::Lt(x, limit), limit, x); }

template <typename T>
void glu_rows_of(const ClampedGlu& g, int64_t begin, int64_t end) {
  const V limit = splat(g.limit), least = splat(-g.limit), alpha = splat(g.alpha), one = splat(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(g.x, t), *z = x + g.y.cols;
    T* y = row_at<T>(g.y, t);
    for_each(g.y.cols, [&](int64_t i, auto w) HWY_ATTR {
      const V gate = at_most(load(x + i, w), limit), up = at_least(at_most(load(z + i, w), limit), least);
      store(hn::Mul(hn::Mul(hn::Add(up, one), gate), sigmoid(hn::Mul(alpha, gate))), y + i, w);
    });
  }
}

template <typename T>
void glu_grad_rows_of(const ClampedGluGrad& g, int64_t begin, int64_t end) {
  const V limit = splat(g.limit), least = splat(-g.limit), alpha = splat(g.alpha), one = splat(1.0f);
  const int64_t width = g.dy.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(g.x, t), *z = x + width, *dy = row_at<T>(g.dy, t);
    T* dx = row_at<T>(g.dx, t);
    for_each(width, [&](int64_t i, auto w) HWY_ATTR {
      const V a = load(x + i, w), b = load(z + i, w), d = load(dy + i, w);
      const V gate = at_most(a, limit), up = at_least(at_most(b, limit), least), s = sigmoid(hn::Mul(alpha, gate));
      const V slope = hn::Mul(s, hn::MulAdd(hn::Mul(alpha, gate), hn::Sub(one, s), one));
      store(hn::IfThenElseZero(hn::Le(a, limit), hn::Mul(hn::Mul(d, hn::Add(up, one)), slope)), dx + i, w);
      const auto inside = hn::And(hn::Le(b, limit), hn::Ge(b, least));
      store(hn::IfThenElseZero(inside, hn::Mul(d, hn::Mul(gate, s))), dx + width + i, w);
    });
  }
}

template <typename T>
void bias_rows_of(const ExpertBias& b, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const auto e = std::upper_bound(b.first, b.first + b.experts + 1, static_cast<int32_t>(r)) - b.first - 1;
    const T* bias = row_at<T>(b.bias, 0) + e * b.y.cols;
    T* y = row_at<T>(b.y, r);
    for_each(b.y.cols,
             [&](int64_t i, auto w) HWY_ATTR { store(hn::Add(load(y + i, w), load(bias + i, w)), y + i, w); });
  }
}

template <typename T>
void bias_grad_rows_of(const ExpertBiasGrad& b, int64_t begin, int64_t end) {
  const int64_t cols = b.dy.cols;
  for (int64_t e = begin; e < end; ++e) {
    float* sum = b.dbias + e * cols;
    if (!b.accumulate) std::fill_n(sum, cols, 0.0f);
    for (int64_t r = b.first[e]; r < b.first[e + 1]; ++r) {
      const T* dy = row_at<T>(b.dy, r);
      for_each(cols,
               [&](int64_t i, auto w) HWY_ATTR { store(hn::Add(load(sum + i, w), load(dy + i, w)), sum + i, w); });
    }
  }
}

MXT_BOTH_TYPES(sinks_rows, AttentionSinks, c.out)
MXT_BOTH_TYPES(sinks_grad_rows, AttentionSinksGrad, c.out)
MXT_BOTH_TYPES(glu_rows, ClampedGlu, c.x)
MXT_BOTH_TYPES(glu_grad_rows, ClampedGluGrad, c.x)
MXT_BOTH_TYPES(bias_rows, ExpertBias, c.y)
MXT_BOTH_TYPES(bias_grad_rows, ExpertBiasGrad, c.dy)

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(sinks_rows);
HWY_EXPORT(sinks_grad_rows);
HWY_EXPORT(glu_rows);
HWY_EXPORT(glu_grad_rows);
HWY_EXPORT(bias_rows);
HWY_EXPORT(bias_grad_rows);

void attention_sinks(const AttentionSinks& a) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sinks_rows);
  parallel_for(0, a.out.rows, rows_per_piece(a.out.cols), [&](int64_t b, int64_t e) { kernel(a, b, e); });
}

// A head's sum runs over the tokens in their order.
void attention_sinks_grad(const AttentionSinksGrad& a) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sinks_grad_rows);
  parallel_for(0, a.heads, 1, [&](int64_t b, int64_t e) { kernel(a, b, e); });
}

void cached_sinks(const CachedSinks& c) {
  std::vector<float> lse(static_cast<size_t>(c.of.heads * c.of.q.rows));
  cached_attention(c.of, lse.data());
  attention_sinks({c.of.out, lse.data(), c.sinks, c.of.heads});
}

void clamped_glu(const ClampedGlu& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(glu_rows);
  parallel_for(0, g.y.rows, rows_per_piece(g.x.cols), [&](int64_t b, int64_t e) { kernel(g, b, e); });
}

void clamped_glu_grad(const ClampedGluGrad& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(glu_grad_rows);
  parallel_for(0, g.dy.rows, rows_per_piece(g.x.cols), [&](int64_t b, int64_t e) { kernel(g, b, e); });
}

void expert_bias(const ExpertBias& b) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(bias_rows);
  parallel_for(0, b.y.rows, rows_per_piece(b.y.cols), [&](int64_t begin, int64_t end) { kernel(b, begin, end); });
}

// An expert's sum runs over its rows in their order.
void expert_bias_grad(const ExpertBiasGrad& b) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(bias_grad_rows);
  parallel_for(0, b.experts, 1, [&](int64_t begin, int64_t end) { kernel(b, begin, end); });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
