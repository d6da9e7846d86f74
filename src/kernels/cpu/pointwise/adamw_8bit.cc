// AdamW whose moments are held in 8 bits: block by block they are decoded, used, and coded again. The arithmetic is
// vectors, the tables are plain code.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/adamw_8bit.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

namespace mxt::kernels::cpu {
#ifndef MXT_KERNELS_CPU_ADAMW_8BIT_ONCE
#define MXT_KERNELS_CPU_ADAMW_8BIT_ONCE
struct AdamW8bitFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, correction2, eps;
};
// What is used of a block: decoded moments, which become the new ones, and the largest magnitude of each.
struct Moments {
  alignas(64) float m[kStateBlock], v[kStateBlock];
  float m_largest, v_largest;
};
#endif
}  // namespace mxt::kernels::cpu

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// `n` elements from `first` on of x, a block or less.
void adamw_block(const Opt8Tensor& x, const AdamW8bitFactors& f, int64_t first, int64_t n, Moments& s) {
  const V grad_scale = splat(f.grad_scale), beta1 = splat(f.beta1), w1 = splat(f.one_minus_beta1);
  const V beta2 = splat(f.beta2), w2 = splat(f.one_minus_beta2), decay = splat(f.decay), step = splat(f.step_size);
  const V correction2 = splat(f.correction2), eps = splat(f.eps);
  V m_most = hn::Zero(F32()), v_most = m_most;
  for_each(n, [&](int64_t k, auto part) HWY_ATTR {
    const int64_t i = first + k;
    const V g = hn::Mul(load(x.grad + i, part), grad_scale);
    const V m = hn::MulAdd(w1, g, hn::Mul(load(s.m + k, part), beta1));
    const V v = hn::MulAdd(hn::Mul(w2, g), g, hn::Mul(load(s.v + k, part), beta2));
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), correction2), eps);
    const V p = hn::NegMulAdd(step, hn::Div(m, denominator), hn::Mul(load(x.master + i, part), decay));
    m_most = hn::Max(m_most, keep(hn::Abs(m), part));
    v_most = hn::Max(v_most, keep(v, part));
    store(m, s.m + k, part);
    store(v, s.v + k, part);
    store(p, x.master + i, part);
    if (x.copy) store(p, x.copy + i, part);
  });
  s.m_largest = hn::GetLane(hn::MaxOfLanes(F32(), m_most));
  s.v_largest = hn::GetLane(hn::MaxOfLanes(F32(), v_most));
}

// x / largest, 0 where all is zero.
void normalise(float* x, int64_t n, float largest) {
  const V by = splat(largest > 0.0f ? largest : 1.0f);
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(hn::Div(load(x + i, part), by), x + i, part); });
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(adamw_block);
HWY_EXPORT(normalise);

// The nearest code of a map for values of [−1, 1]. A value's upper 16 bits name a range so narrow that at most one
// border between two codes lies in it: 128 ranges an octave, and no more than 43 codes.
class Codes {
 public:
  explicit Codes(bool is_signed) : map_(dynamic_map(is_signed)), least_(1 << 16) {
    for (int c = 0; c < 255; ++c)
      border_[c] = static_cast<float>((static_cast<double>(map_[c]) + static_cast<double>(map_[c + 1])) / 2);
    border_[255] = HUGE_VALF;
    for (uint32_t h = 0; h < 1 << 16; ++h) {
      const auto low = std::bit_cast<float>(h & 0x8000u ? h << 16 | 0xffffu : h << 16);
      if (!(std::abs(low) <= 2.0f)) continue;  // never a quotient: code 0
      least_[h] = static_cast<uint8_t>(std::lower_bound(border_, border_ + 255, low) - border_);
    }
  }
  float value(uint8_t code) const { return map_[code]; }
  uint8_t nearest(float x) const {
    const uint8_t c = least_[std::bit_cast<uint32_t>(x) >> 16];
    return static_cast<uint8_t>(c + (x > border_[c]));
  }

 private:
  const float* map_;
  float border_[256];  // between a code and the next
  std::vector<uint8_t> least_;
};

}  // namespace

void adamw_8bit(const AdamW8bit& a) {
  static const Codes m_codes(true), v_codes(false);
  const double t = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, t), correction2 = std::sqrt(1.0 - std::pow(a.beta2, t));
  std::vector<int64_t> sizes;
  for (const Opt8Tensor& x : a.tensors) sizes.push_back(x.n);
  const auto kernel = HWY_DYNAMIC_DISPATCH(adamw_block);
  const auto divide = HWY_DYNAMIC_DISPATCH(normalise);
  static_assert(kGrain % kStateBlock == 0);
  over_tensors(sizes, kGrain, [&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    const Opt8Tensor& x = a.tensors[tensor];
    const double lr = static_cast<double>(x.lr);
    const AdamW8bitFactors f{a.whole_grad_scale(),
                             static_cast<float>(a.beta1),
                             static_cast<float>(1.0 - a.beta1),
                             static_cast<float>(a.beta2),
                             static_cast<float>(1.0 - a.beta2),
                             static_cast<float>(1.0 - lr * static_cast<double>(x.weight_decay)),
                             static_cast<float>(lr / correction1),
                             static_cast<float>(correction2),
                             a.eps};
    Moments s;
    for (int64_t first = begin; first < end; first += kStateBlock) {
      const int64_t n = std::min(kStateBlock, end - first), block = first / kStateBlock;
      for (int64_t k = 0; k < n; ++k) {
        s.m[k] = m_codes.value(x.m[first + k]) * x.m_largest[block];
        s.v[k] = v_codes.value(x.v[first + k]) * x.v_largest[block];
      }
      kernel(x, f, first, n, s);
      divide(s.m, n, s.m_largest);
      divide(s.v, n, s.v_largest);
      for (int64_t k = 0; k < n; ++k) {
        x.m[first + k] = m_codes.nearest(s.m[k]);
        x.v[first + k] = v_codes.nearest(s.v[k]);
      }
      x.m_largest[block] = s.m_largest;
      x.v_largest[block] = s.v_largest;
    }
  });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
