// The inner kernels for every other processor, in fp32, compiled by Highway once per instruction set.
#include "kernels/cpu/gemm/micro.h"

#include "base/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/micro_portable.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

constexpr int kRows = 6;
constexpr int kVecs = 2;  // 12 sums fit every x86 register file

// Scales and stores a row of sums; plain loops, which the compiler vectorises for the target.
HWY_ATTR void finish(const PanelCall& p, const float* sum, int64_t row, int64_t col, int64_t count) {
  const int64_t at = row * p.ldc + col;
  float v[kPanel];
  for (int64_t j = 0; j < count; ++j) v[j] = sum[j] * p.alpha;
  if (p.bias && p.bias_bf16)
    for (int64_t j = 0; j < count; ++j) v[j] += bf16_to_float(static_cast<const uint16_t*>(p.bias)[col + j]);
  else if (p.bias)
    for (int64_t j = 0; j < count; ++j) v[j] += static_cast<const float*>(p.bias)[col + j];
  if (p.c_bf16) {
    uint16_t* c = static_cast<uint16_t*>(p.c) + at;
    if (p.accumulate)
      for (int64_t j = 0; j < count; ++j) v[j] += bf16_to_float(c[j]);
    for (int64_t j = 0; j < count; ++j) c[j] = float_to_bf16(v[j]);
  } else {
    float* c = static_cast<float*>(p.c) + at;
    if (p.accumulate)
      for (int64_t j = 0; j < count; ++j) v[j] += c[j];
    for (int64_t j = 0; j < count; ++j) c[j] = v[j];
  }
}

// kN rows from `row` on against two vectors of columns from `col` on.
template <int kN>
HWY_ATTR void tile(const PanelCall& p, int64_t row, int64_t col) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = panel_width(p.n);
  V sum[kN][kVecs];
  float* partial = p.partial + row * kPanel + col;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = p.from_partial ? hn::LoadU(d, partial + i * kPanel + j * lanes) : hn::Zero(d);
  const char* a = static_cast<const char*>(p.a) + row * p.a_row;
  const float* b = static_cast<const float*>(p.b) + col;
  const bool two = col + lanes < width;
  for (int64_t s = 0; s < p.steps; ++s, a += p.a_step, b += width) {
    const V b0 = hn::LoadU(d, b), b1 = two ? hn::LoadU(d, b + lanes) : b0;
    for (int i = 0; i < kN; ++i) {
      const V av = hn::Set(d, *reinterpret_cast<const float*>(a + i * p.a_row));
      sum[i][0] = hn::MulAdd(av, b0, sum[i][0]);
      sum[i][1] = hn::MulAdd(av, b1, sum[i][1]);
    }
  }
  HWY_ALIGN float out[kVecs * 16];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < (two ? kVecs : 1); ++j) {
      if (p.to_partial) {
        hn::StoreU(sum[i][j], d, partial + i * kPanel + j * lanes);
      } else {
        const int64_t at = col + j * lanes, count = p.n - at < lanes ? p.n - at : lanes;
        hn::StoreU(sum[i][j], d, out);
        if (count > 0) finish(p, out, row + i, at, count);
      }
    }
}

HWY_ATTR void run(const PanelCall& p) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D())), width = panel_width(p.n);
  int64_t row = 0;
  for (; row + kRows <= p.m; row += kRows)
    for (int64_t col = 0; col < width; col += kVecs * lanes) tile<kRows>(p, row, col);
  for (; row + 2 <= p.m; row += 2)
    for (int64_t col = 0; col < width; col += kVecs * lanes) tile<2>(p, row, col);
  for (; row < p.m; ++row)
    for (int64_t col = 0; col < width; col += kVecs * lanes) tile<1>(p, row, col);
}

// Sixteen steps of sixteen columns at a time, so that reads and writes both stay within a few cache lines.
template <bool kBf16>
HWY_ATTR void pack(const PackCall& c) {
  float* to = static_cast<float*>(c.to);
  auto load = [&](int64_t at) HWY_ATTR {
    if constexpr (kBf16)
      return bf16_to_float(static_cast<const uint16_t*>(c.p)[at]);
    else
      return static_cast<const float*>(c.p)[at];
  };
  if (c.k_contiguous) {
    for (int64_t i0 = 0; i0 < c.width; i0 += 16)
      for (int64_t s0 = 0; s0 < c.k; s0 += 16) {
        const int64_t s1 = s0 + 16 < c.k ? s0 + 16 : c.k;
        for (int64_t i = i0; i < i0 + 16; ++i) {
          if (i < c.count)
            for (int64_t s = s0; s < s1; ++s) to[s * c.width + i] = load(i * c.ld + s);
          else
            for (int64_t s = s0; s < s1; ++s) to[s * c.width + i] = 0;
        }
      }
    return;
  }
  for (int64_t s = 0; s < c.k; ++s) {
    for (int64_t i = 0; i < c.count; ++i) to[s * c.width + i] = load(s * c.ld + i);
    for (int64_t i = c.count; i < c.width; ++i) to[s * c.width + i] = 0;
  }
}

HWY_ATTR void pack_f32(const PackCall& c) { pack<false>(c); }
HWY_ATTR void pack_bf16(const PackCall& c) { pack<true>(c); }

}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(run);
HWY_EXPORT(pack_f32);
HWY_EXPORT(pack_bf16);

const Micro& portable_micro(Unit unit) {
  // The table is read at each call, so a test may choose the target.
  static const Micro f32{"portable", [](const PanelCall& p) { HWY_DYNAMIC_DISPATCH(run)(p); },
                         [](const PackCall& c) { HWY_DYNAMIC_DISPATCH(pack_f32)(c); }};
  static const Micro widened{"portable", [](const PanelCall& p) { HWY_DYNAMIC_DISPATCH(run)(p); },
                             [](const PackCall& c) { HWY_DYNAMIC_DISPATCH(pack_bf16)(c); }};
  return unit == Unit::kF32 ? f32 : widened;
}

}  // namespace mxt::kernels::cpu
#endif
