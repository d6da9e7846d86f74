#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/loss.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

struct Largest {
  V v;
  HWY_INLINE Largest() : v(hn::Set(F32(), -HUGE_VALF)) {}
  HWY_INLINE void merge(const Largest& o) { v = hn::Max(v, o.v); }
  HWY_INLINE float total() const { return hn::GetLane(hn::MaxOfLanes(F32(), v)); }
};

HWY_INLINE V or_lowest(V v, Whole) { return v; }
HWY_INLINE V or_lowest(V v, Part part) {
  return hn::IfThenElse(hn::FirstN(F32(), static_cast<size_t>(part.n)), v, splat(-HUGE_VALF));
}

void set_float(float* p, float x) { *p = x; }
void set_float(uint16_t* p, float x) { *p = float_to_bf16(x); }

// Three passes over a row that stays in the second-level cache: largest logit, Σ exp, gradient.
template <typename T, bool kCap>
void cross_entropy_row(const CrossEntropy& c, int64_t row) {
  const int64_t vocab = c.logits.cols;
  T* x = row_at<T>(c.logits, row);
  const int32_t label = c.labels[row];
  if (label == -100) {
    c.nll[row] = 0;
    if (c.entropy) c.entropy[row] = 0;
    if (c.gradient) std::memset(x, 0, static_cast<size_t>(vocab) * sizeof(T));
    return;
  }
  MXT_ASSERT(label >= 0 && label < vocab);
  const V cap = splat(c.softcap), inv_cap = splat(kCap ? 1.0f / c.softcap : 0.0f), one = splat(1.0f);

  float top = reduce<Largest>(vocab, [&](int64_t i, auto part, Largest& acc) HWY_ATTR {
                acc.v = hn::Max(acc.v, or_lowest(load(x + i, part), part));
              }).total();
  auto capped = [&](float v) { return kCap ? c.softcap * std::tanh(v / c.softcap) : v; };
  top = capped(top);
  const float z_label = capped(as_float(x[label]));
  const V top_v = splat(top);
  const float sum = reduce<Sum>(vocab, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
                      V z = load(x + i, part);
                      if constexpr (kCap) z = hn::Mul(cap, tanh(hn::Mul(z, inv_cap)));
                      acc.v = hn::Add(acc.v, exp_bounded(or_lowest(hn::Sub(z, top_v), part)));
                    }).total();
  c.nll[row] =
      static_cast<float>(static_cast<double>(top) - static_cast<double>(z_label) + std::log(static_cast<double>(sum)));
  if (c.entropy) {
    // With d = z − top: −Σ p ln p = ln Σ eᵈ − Σ eᵈ·d / Σ eᵈ. Where eᵈ is 0 so is its product, even for d = −∞.
    const V lowest = splat(-1e4f);
    const float weighted = reduce<Sum>(vocab, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
                             V z = load(x + i, part);
                             if constexpr (kCap) z = hn::Mul(cap, tanh(hn::Mul(z, inv_cap)));
                             const V d = hn::Max(or_lowest(hn::Sub(z, top_v), part), lowest);
                             acc.v = hn::MulAdd(exp_bounded(d), d, acc.v);
                           }).total();
    c.entropy[row] = static_cast<float>(std::log(static_cast<double>(sum)) -
                                        static_cast<double>(weighted) / static_cast<double>(sum));
  }
  if (!c.gradient) return;

  const float weight = c.weights && !c.softmax ? c.weights[row] : 1.0f;
  const V scale = splat(weight / sum);
  for_each(vocab, [&](int64_t i, auto part) HWY_ATTR {
    V z = load(x + i, part), slope = one;
    if constexpr (kCap) {
      const V t = tanh(hn::Mul(z, inv_cap));
      z = hn::Mul(cap, t);
      slope = hn::NegMulAdd(t, t, one);
    }
    V g = hn::Mul(exp_bounded(hn::Sub(z, top_v)), scale);
    if constexpr (kCap) g = hn::Mul(g, slope);
    store(g, x + i, part);
  });
  if (c.softmax) {
    set_float(x + label, 0.0f);
    return;
  }
  const float slope = kCap ? 1.0f - (z_label / c.softcap) * (z_label / c.softcap) : 1.0f;
  set_float(x + label, weight * (std::exp(z_label - top) / sum - 1.0f) * slope);
}

void cross_entropy_rows(const CrossEntropy& c, int64_t begin, int64_t end) {
  const bool f32 = c.logits.type == DType::kF32;
  for (int64_t r = begin; r < end; ++r) {
    if (c.softcap > 0)
      f32 ? cross_entropy_row<float, true>(c, r) : cross_entropy_row<uint16_t, true>(c, r);
    else
      f32 ? cross_entropy_row<float, false>(c, r) : cross_entropy_row<uint16_t, false>(c, r);
  }
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {
HWY_EXPORT(cross_entropy_rows);
float value_of(float x) { return x; }
float value_of(uint16_t x) { return bf16_to_float(x); }
void set_value(float* p, float x) { *p = x; }
void set_value(uint16_t* p, float x) { *p = float_to_bf16(x); }
}  // namespace

void cross_entropy(const CrossEntropy& c) {
  MXT_ASSERT(c.logits.type != DType::kF64 && c.held.q.p == nullptr);  // the host multiplies no E4M3
  const auto kernel = HWY_DYNAMIC_DISPATCH(cross_entropy_rows);
  parallel_for(0, c.logits.rows, rows_per_piece(c.logits.cols),
               [&](int64_t begin, int64_t end) { kernel(c, begin, end); });
}

void label_grad(const LabelGrad& g) {
  MXT_ASSERT(g.w.type == g.dh.type && g.dh.type != DType::kF64);
  const auto rows = [&](auto* dh, const auto* w, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t label = g.labels[i];
      auto* to = dh + i * g.dh.ld;
      if (label == -100) {
        std::fill_n(to, g.dh.cols, 0);
        continue;
      }
      const float weight = g.weights && !g.at_label ? g.weights[i] : 1.0f,
                  of_label = g.at_label ? g.at_label[i] : std::expm1(-g.nll[i]);
      const auto* from = w + label * g.w.ld;
      for (int64_t j = 0; j < g.dh.cols; ++j)
        set_value(to + j, weight * (value_of(to[j]) + of_label * value_of(from[j])));
    }
  };
  parallel_for(0, g.dh.rows, rows_per_piece(g.dh.cols), [&](int64_t begin, int64_t end) {
    if (g.dh.type == DType::kF32)
      rows(static_cast<float*>(g.dh.p), static_cast<const float*>(g.w.p), begin, end);
    else
      rows(static_cast<uint16_t*>(g.dh.p), static_cast<const uint16_t*>(g.w.p), begin, end);
  });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
