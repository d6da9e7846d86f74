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

// kN rows from `row` on against kVecs vectors of columns from `col` on.
template <int kN, int kVecs>
HWY_ATTR void tile(const PanelCall& p, int64_t row, int64_t col) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = panel_width(p.n);
  V sum[kN][kVecs];
  float* partial = p.from_partial || p.to_partial ? p.partial + row * kPanel + col : nullptr;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = p.from_partial ? hn::LoadU(d, partial + i * kPanel + j * lanes) : hn::Zero(d);
  const char* a = static_cast<const char*>(p.a) + row * p.a_row;
  const float* b = static_cast<const float*>(p.b) + col;
  for (int64_t s = 0; s < p.steps; ++s, a += p.a_step, b += width) {
    V bv[kVecs];
    for (int j = 0; j < kVecs; ++j) bv[j] = hn::LoadU(d, b + j * lanes);
    for (int i = 0; i < kN; ++i) {
      const V av = hn::Set(d, *reinterpret_cast<const float*>(a + i * p.a_row));
      for (int j = 0; j < kVecs; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
  }
  HWY_ALIGN float out[16];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kVecs; ++j) {
      if (p.to_partial) {
        hn::StoreU(sum[i][j], d, partial + i * kPanel + j * lanes);
      } else {
        const int64_t at = col + j * lanes, count = p.n - at < lanes ? p.n - at : lanes;
        hn::StoreU(sum[i][j], d, out);
        if (count > 0) finish(p, out, row + i, at, count);
      }
    }
}

// Few rows take more columns at once: eight sums keep both multipliers busy, twelve and what they need fit 16
// registers.
template <int kN>
HWY_ATTR void rows_of(const PanelCall& p, int64_t row) {
  constexpr int kWide = kN == 1 ? 8 : kN <= 3 ? 4 : 2, kLanes = static_cast<int>(hn::MaxLanes(D()));
  const int64_t width = panel_width(p.n);
  int64_t col = 0;
  for (; col + kWide * kLanes <= width; col += kWide * kLanes) tile<kN, kWide>(p, row, col);
  for (; col < width; col += 16) tile<kN, 16 / kLanes>(p, row, col);
}

HWY_ATTR void run(const PanelCall& p) {
  int64_t row = 0;
  for (; row + 6 <= p.m; row += 6) rows_of<6>(p, row);
  switch (p.m - row) {
    case 5:
      return rows_of<5>(p, row);
    case 4:
      return rows_of<4>(p, row);
    case 3:
      return rows_of<3>(p, row);
    case 2:
      return rows_of<2>(p, row);
    case 1:
      return rows_of<1>(p, row);
    default:
      return;
  }
}

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
HWY_INLINE hn::Vec<D4> four(const float* p) { return hn::LoadU(D4(), p); }
HWY_INLINE hn::Vec<D4> four(const uint16_t* p) {
  const hn::RebindToUnsigned<D4> du;
  return hn::BitCast(D4(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D4>(), p))));
}

// Four steps of four columns, which stand `ld` apart.
template <typename T>
HWY_INLINE void transpose(const T* p, int64_t ld, float* to, int64_t width) {
  const D4 d;
  const auto a = four(p), b = four(p + ld), c = four(p + 2 * ld), e = four(p + 3 * ld);
  const auto ac0 = hn::InterleaveLower(d, a, c), ac1 = hn::InterleaveUpper(d, a, c);
  const auto be0 = hn::InterleaveLower(d, b, e), be1 = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, ac0, be0), d, to);
  hn::StoreU(hn::InterleaveUpper(d, ac0, be0), d, to + width);
  hn::StoreU(hn::InterleaveLower(d, ac1, be1), d, to + 2 * width);
  hn::StoreU(hn::InterleaveUpper(d, ac1, be1), d, to + 3 * width);
}
#else
template <typename T>
HWY_INLINE void transpose(const T* p, int64_t ld, float* to, int64_t width) {
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t s = 0; s < 4; ++s) {
      if constexpr (sizeof(T) == 2)
        to[s * width + i] = bf16_to_float(p[i * ld + s]);
      else
        to[s * width + i] = p[i * ld + s];
    }
}
#endif

// Sixteen steps of sixteen columns at a time, so that reads and writes both stay within a few cache lines.
template <typename T>
HWY_ATTR void pack(const PackCall& c) {
  float* to = static_cast<float*>(c.to);
  const T* const p = static_cast<const T*>(c.p);
  auto load = [&](int64_t at) HWY_ATTR {
    if constexpr (sizeof(T) == 2)
      return bf16_to_float(p[at]);
    else
      return p[at];
  };
  if (c.k_contiguous) {
    for (int64_t i0 = 0; i0 < c.width; i0 += 16)
      for (int64_t s0 = 0; s0 < c.k; s0 += 16) {
        if (i0 + 16 <= c.count && s0 + 16 <= c.k) {
          for (int64_t i = i0; i < i0 + 16; i += 4)
            for (int64_t s = s0; s < s0 + 16; s += 4) transpose(p + i * c.ld + s, c.ld, to + s * c.width + i, c.width);
          continue;
        }
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

HWY_ATTR void pack_f32(const PackCall& c) { pack<float>(c); }
HWY_ATTR void pack_bf16(const PackCall& c) { pack<uint16_t>(c); }

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
