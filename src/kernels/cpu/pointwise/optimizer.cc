#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/optimizer.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

namespace mxt::kernels::cpu {
// One tensor's constants, worked out in double.
#ifndef MXT_KERNELS_CPU_OPTIMIZER_ONCE
#define MXT_KERNELS_CPU_OPTIMIZER_ONCE
struct AdamWFactors {
  float grad_scale, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, correction2, eps;
};
struct LionFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
};
#endif
}  // namespace mxt::kernels::cpu

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// One pass over master, m, v and grad. The order of operations is PyTorch's.
void adamw_piece(const OptTensor& x, const AdamWFactors& f, int64_t begin, int64_t end) {
  const V grad_scale = splat(f.grad_scale), w1 = splat(f.one_minus_beta1), beta2 = splat(f.beta2);
  const V w2 = splat(f.one_minus_beta2), decay = splat(f.decay), step = splat(f.step_size);
  const V correction2 = splat(f.correction2), eps = splat(f.eps);
  for_each(end - begin, [&](int64_t offset, auto part) HWY_ATTR {
    const int64_t i = begin + offset;
    const V g = hn::Mul(load(x.grad + i, part), grad_scale), m0 = load(x.m + i, part);
    const V m = hn::MulAdd(hn::Sub(g, m0), w1, m0);
    const V v = hn::MulAdd(hn::Mul(w2, g), g, hn::Mul(load(x.v + i, part), beta2));
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), correction2), eps);
    const V p = hn::NegMulAdd(step, hn::Div(m, denominator), hn::Mul(load(x.master + i, part), decay));
    store(m, x.m + i, part);
    store(v, x.v + i, part);
    store(p, x.master + i, part);
    if (x.copy) store(p, x.copy + i, part);
  });
}

// u's sign where it has one, times the rate.
void lion_piece(const OptTensor& x, const LionFactors& f, int64_t begin, int64_t end) {
  const V grad_scale = splat(f.grad_scale), beta1 = splat(f.beta1), w1 = splat(f.one_minus_beta1);
  const V beta2 = splat(f.beta2), w2 = splat(f.one_minus_beta2), zero = hn::Zero(F32());
  const V decay = splat(1.0f - x.lr * x.weight_decay), up = splat(x.lr), down = splat(-x.lr);
  for_each(end - begin, [&](int64_t offset, auto part) HWY_ATTR {
    const int64_t i = begin + offset;
    const V g = hn::Mul(load(x.grad + i, part), grad_scale), m = load(x.m + i, part);
    const V u = hn::MulAdd(w1, g, hn::Mul(m, beta1));
    const V step = hn::IfThenElse(hn::Gt(u, zero), up, hn::IfThenElse(hn::Lt(u, zero), down, zero));
    const V p = hn::Sub(hn::Mul(load(x.master + i, part), decay), step);
    store(hn::MulAdd(w2, g, hn::Mul(m, beta2)), x.m + i, part);
    store(p, x.master + i, part);
    if (x.copy) store(p, x.copy + i, part);
  });
}

double squares(const float* p, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  auto at = [&](int64_t i) HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(half, p + i)); };
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    const auto x0 = at(i), x1 = at(i + step), x2 = at(i + 2 * step), x3 = at(i + 3 * step);
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
    c = hn::MulAdd(x2, x2, c);
    e = hn::MulAdd(x3, x3, e);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i) sum += static_cast<double>(p[i]) * static_cast<double>(p[i]);
  return sum;
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(adamw_piece);
HWY_EXPORT(lion_piece);
HWY_EXPORT(squares);

}  // namespace

void adamw(const AdamW& a) {
  const double t = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, t), correction2 = std::sqrt(1.0 - std::pow(a.beta2, t));
  std::vector<int64_t> sizes;
  for (const OptTensor& x : a.tensors) sizes.push_back(x.n);
  const auto kernel = HWY_DYNAMIC_DISPATCH(adamw_piece);
  over_tensors(sizes, kGrain, [&](int64_t, size_t tensor, int64_t begin, int64_t end) {
    const OptTensor& x = a.tensors[tensor];
    const double lr = static_cast<double>(x.lr);
    const AdamWFactors f{a.whole_grad_scale(),
                         static_cast<float>(1.0 - a.beta1),
                         static_cast<float>(a.beta2),
                         static_cast<float>(1.0 - a.beta2),
                         static_cast<float>(1.0 - lr * static_cast<double>(x.weight_decay)),
                         static_cast<float>(lr / correction1),
                         static_cast<float>(correction2),
                         a.eps};
    kernel(x, f, begin, end);
  });
}

void lion(const Lion& l) {
  const LionFactors f{l.whole_grad_scale(), static_cast<float>(l.beta1), static_cast<float>(1.0 - l.beta1),
                      static_cast<float>(l.beta2), static_cast<float>(1.0 - l.beta2)};
  std::vector<int64_t> sizes;
  for (const OptTensor& x : l.tensors) sizes.push_back(x.n);
  const auto kernel = HWY_DYNAMIC_DISPATCH(lion_piece);
  over_tensors(sizes, kGrain,
               [&](int64_t, size_t tensor, int64_t begin, int64_t end) { kernel(l.tensors[tensor], f, begin, end); });
}

double squared_norm(const SquaredNorm& s) {
  int64_t pieces = 0;
  for (int64_t n : s.sizes) pieces += (n + kGrain - 1) / kGrain;
  std::vector<double> partial(static_cast<size_t>(pieces));
  const auto kernel = HWY_DYNAMIC_DISPATCH(squares);
  over_tensors(s.sizes, kGrain, [&](int64_t piece, size_t tensor, int64_t begin, int64_t end) {
    partial[static_cast<size_t>(piece)] = kernel(s.grads[tensor] + begin, end - begin);
  });
  double sum = 0;
  for (double p : partial) sum += p;
  return sum;
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
