// What the vector kernels share: loads and stores of F32 and BF16 as float vectors, loops over rows with a tail, and
// exp, sigmoid, tanh and the normal distribution. Included once per instruction set by Highway's foreach_target.h.
#if defined(MXT_KERNELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MXT_KERNELS_CPU_SIMD_INL_H
#undef MXT_KERNELS_CPU_SIMD_INL_H
#else
#define MXT_KERNELS_CPU_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/api.h"

// The kernel of a call over rows [begin, end): name_of<T> for the type of its operand `matrix` of the call c.
#ifndef MXT_BOTH_TYPES
#define MXT_BOTH_TYPES(name, Call, matrix)                                                               \
  void name(const Call& c, int64_t begin, int64_t end) {                                                 \
    (matrix).type == DType::kF32 ? name##_of<float>(c, begin, end) : name##_of<uint16_t>(c, begin, end); \
  }
#endif

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using V = hn::Vec<F32>;
using VU32 = hn::Vec<U32>;

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }
HWY_INLINE V splat(float x) { return hn::Set(F32(), x); }

// ---- F32 and BF16 in memory

HWY_INLINE V load(const float* p) { return hn::LoadU(F32(), p); }
HWY_INLINE V load(const uint16_t* p) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), p))));
}

// The bits of the nearest bf16, ties to even, in the upper halves; NaN stays NaN.
HWY_INLINE VU32 round_to_bf16(V v) {
  const U32 d;
  const VU32 u = hn::BitCast(d, v);
  const VU32 odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d, 1u));
  const VU32 rounded = hn::Add(hn::Add(u, hn::Set(d, 0x7fffu)), odd);
  const VU32 quiet = hn::Or(u, hn::Set(d, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
}

HWY_INLINE hn::Vec<U16> narrow_bits(V v) {
  const VU32 high = hn::ShiftRight<16>(round_to_bf16(v));
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<U16>{_mm512_cvtepi32_epi16(high.raw)};
#else
  return hn::DemoteTo(U16(), hn::BitCast(I32(), high));
#endif
}
HWY_INLINE void store(V v, float* p) { hn::StoreU(v, F32(), p); }
HWY_INLINE void store(V v, uint16_t* p) { hn::StoreU(narrow_bits(v), U16(), p); }

// One element, by the same rounding.
HWY_INLINE float as_float(float x) { return x; }
HWY_INLINE float as_float(uint16_t x) { return bf16_to_float(x); }
HWY_INLINE void put(float x, float* to) { *to = x; }
HWY_INLINE void put(float x, uint16_t* to) { *to = float_to_bf16(x); }

template <typename T>
HWY_INLINE const T* row_at(const ConstMat& m, int64_t r) {
  return static_cast<const T*>(m.p) + r * m.ld;
}
template <typename T>
HWY_INLINE T* row_at(const Mat& m, int64_t r) {
  return static_cast<T*>(m.p) + r * m.ld;
}

// v as a reader of memory of T will see it.
HWY_INLINE V rounded_as(V v, const float*) { return v; }
HWY_INLINE V rounded_as(V v, const uint16_t*) {
  return hn::BitCast(F32(), hn::And(round_to_bf16(v), hn::Set(U32(), 0xffff0000u)));
}

// ---- loops: f(i, whole) for full vectors, then f(i, part) for the last few elements

struct Whole {};
struct Part {
  int64_t n;
};

template <typename T>
HWY_INLINE V load(const T* p, Whole) {
  return load(p);
}
template <typename T>
HWY_INLINE void store(V v, T* p, Whole) {
  store(v, p);
}
#if HWY_TARGET == HWY_AVX3  // masked moves do not touch what they leave out
HWY_INLINE V load(const float* p, Part part) {
  return hn::MaskedLoad(hn::FirstN(F32(), static_cast<size_t>(part.n)), F32(), p);
}
HWY_INLINE V load(const uint16_t* p, Part part) {
  const auto half = hn::MaskedLoad(hn::FirstN(U16(), static_cast<size_t>(part.n)), U16(), p);
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), half)));
}
HWY_INLINE void store(V v, float* p, Part part) {
  hn::BlendedStore(v, hn::FirstN(F32(), static_cast<size_t>(part.n)), F32(), p);
}
HWY_INLINE void store(V v, uint16_t* p, Part part) {
  hn::BlendedStore(narrow_bits(v), hn::FirstN(U16(), static_cast<size_t>(part.n)), U16(), p);
}
#else
template <typename T>
HWY_INLINE V load(const T* p, Part part) {  // zeros past the end
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(part.n) * sizeof(T));
  return load(buffer);
}
template <typename T>
HWY_INLINE void store(V v, T* p, Part part) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)];
  store(v, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(part.n) * sizeof(T));
}
#endif
// Zero in the lanes past the end.
HWY_INLINE V keep(V v, Whole) { return v; }
HWY_INLINE V keep(V v, Part part) { return hn::IfThenElseZero(hn::FirstN(F32(), static_cast<size_t>(part.n)), v); }

template <typename F>
HWY_INLINE void for_each(int64_t n, F f) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) f(i, Whole());
  if (i < n) f(i, Part{n - i});
}

// Four accumulators hide the latency of the additions; their order is fixed by n and the vector width alone.
// f(i, whole or part, acc) adds into acc; Acc has merge(other).
template <typename Acc, typename F>
HWY_INLINE Acc reduce(int64_t n, F f) {
  const int64_t step = lanes();
  Acc a, b, c, d;
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    f(i, Whole(), a);
    f(i + step, Whole(), b);
    f(i + 2 * step, Whole(), c);
    f(i + 3 * step, Whole(), d);
  }
  for (; i + step <= n; i += step) f(i, Whole(), a);
  if (i < n) f(i, Part{n - i}, b);
  a.merge(b), c.merge(d), a.merge(c);
  return a;
}

struct Sum {
  V v;
  HWY_INLINE Sum() : v(hn::Zero(F32())) {}  // written out: an implicit constructor is not compiled for the target
  HWY_INLINE void merge(const Sum& o) { v = hn::Add(v, o.v); }
  HWY_INLINE float total() const { return hn::GetLane(hn::SumOfLanes(F32(), v)); }
};
struct TwoSums {
  Sum a, b;
  HWY_INLINE TwoSums() {}
  HWY_INLINE void merge(const TwoSums& o) { a.merge(o.a), b.merge(o.b); }
};

// ---- functions

// exp(x) for x ≤ 88.37 to 1 ulp where there is FMA; 0 below −87.33 (the smallest normal result), NaN for NaN.
// x = n·ln 2 + r with |r| ≤ ln 2 / 2; n is read off the low bits of x/ln 2 + 1.5·2²³; exp(r) is a polynomial of degree
// 6 fitted for least largest relative error (4e-9).
HWY_INLINE V exp_bounded(V x) {
  const U32 d;
  const V magic = splat(12582912.0f);
  const V shifted = hn::MulAdd(x, splat(1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, splat(0.693145752f), x);  // ln 2 in two parts; n times the first is exact
  r = hn::NegMulAdd(n, splat(1.42860677e-6f), r);
  V p = hn::MulAdd(splat(1.3814467e-3f), r, splat(8.3687808e-3f));
  p = hn::MulAdd(p, r, splat(4.1668393e-2f));
  p = hn::MulAdd(p, r, splat(0.16666520f));
  p = hn::MulAdd(p, r, splat(0.49999994f));
  p = hn::MulAdd(hn::MulAdd(p, r, splat(1.0f)), r, splat(1.0f));
  const VU32 power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(d, shifted)), hn::Set(d, 0x3f800000u));  // 2ⁿ
  return hn::IfThenZeroElse(hn::Lt(x, splat(-87.33f)), hn::Mul(p, hn::BitCast(F32(), power)));
}
HWY_INLINE V exp(V x) {  // any x; infinite from 88.37 on
  return hn::IfThenElse(hn::Gt(x, splat(88.37f)), splat(HUGE_VALF), exp_bounded(x));
}

HWY_INLINE V sigmoid(V x) { return hn::Div(splat(1.0f), hn::Add(splat(1.0f), exp(hn::Neg(x)))); }

// 1 − 2/(e^{2x}+1): absolute error 1e-7.
HWY_INLINE V tanh(V x) { return hn::Sub(splat(1.0f), hn::Div(splat(2.0f), hn::Add(splat(1.0f), exp(hn::Add(x, x))))); }

struct Normal {
  V cdf, pdf;
};
// Φ(x) = erfc(−x/√2)/2 with erfc(z) = e^{−z²}·t·P(t), t = 1/(1 + 0.4z) for z ≥ 0; P fitted over 0 ≤ z ≤ 11 for least
// largest relative error (8e-8).
HWY_INLINE Normal normal(V x) {
  const V one = splat(1.0f);
  const V z = hn::Mul(hn::Abs(x), splat(0.70710678f));
  const V t = hn::Div(one, hn::MulAdd(z, splat(0.4f), one));
  V p = hn::MulAdd(splat(0.042881235f), t, splat(-0.14826076f));
  p = hn::MulAdd(p, t, splat(0.10044307f));
  p = hn::MulAdd(p, t, splat(0.069096625f));
  p = hn::MulAdd(p, t, splat(0.092810169f));
  p = hn::MulAdd(p, t, splat(0.18782996f));
  p = hn::MulAdd(p, t, splat(0.20330960f));
  p = hn::MulAdd(p, t, splat(0.22624433f));
  p = hn::MulAdd(p, t, splat(0.22564584f));
  const V e = exp_bounded(hn::Mul(hn::Mul(x, x), splat(-0.5f)));
  const V tail = hn::Mul(hn::Mul(hn::Mul(e, t), p), splat(0.5f));
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), tail, hn::Sub(one, tail)), hn::Mul(e, splat(0.39894228f))};
}

}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
