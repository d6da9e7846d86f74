// arm64 with bf16 dot products (Armv8.6: Neoverse V1, N2 and V2, Apple M2 and later): BFDOT adds both products of a
// pair to the fp32 sum. 32 registers hold 24 sums (6 rows × 16 columns), the columns and one broadcast. Elsewhere on
// arm64 bf16 is multiplied as fp32 by the portable kernel.
#include "kernels/cpu/gemm/micro.h"

#if defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>

#include <cstring>

#include "base/types.h"

#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1 << 14)  // Linux' asm/hwcap.h
#endif

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")

namespace mxt::kernels::cpu {
namespace {

constexpr int64_t kCols = 16, kVecs = kCols / 4;

// Scales and stores sixteen sums of a row, or the `count` that there are.
void finish(const PanelCall& p, const float* sum, int64_t row, int64_t col, int64_t count) {
  const int64_t at = row * p.ldc + col;
  float v[kCols];
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

// kRows rows from `row` on against the sixteen columns from `col` on.
template <int kRows>
void tile(const PanelCall& p, int64_t row, int64_t col) {
  float32x4_t sum[kRows][kVecs];
  float* partial = p.from_partial || p.to_partial ? p.partial + row * kPanel + col : nullptr;
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = p.from_partial ? vld1q_f32(partial + i * kPanel + j * 4) : vdupq_n_f32(0);
  const char* a = static_cast<const char*>(p.a) + row * p.a_row;
  const uint32_t* b = static_cast<const uint32_t*>(p.b) + col;
  const int64_t width = panel_width(p.n);
  for (int64_t s = 0; s < p.steps; ++s, a += p.a_step, b += width) {
    bfloat16x8_t bv[kVecs];
    for (int j = 0; j < kVecs; ++j) bv[j] = vreinterpretq_bf16_u32(vld1q_u32(b + j * 4));
    for (int i = 0; i < kRows; ++i) {
      uint32_t pair;
      std::memcpy(&pair, a + i * p.a_row, sizeof pair);
      const bfloat16x8_t av = vreinterpretq_bf16_u32(vdupq_n_u32(pair));
      for (int j = 0; j < kVecs; ++j) sum[i][j] = vbfdotq_f32(sum[i][j], av, bv[j]);
    }
  }
  float out[kCols];
  for (int i = 0; i < kRows; ++i) {
    float* to = p.to_partial ? partial + i * kPanel : out;
    for (int j = 0; j < kVecs; ++j) vst1q_f32(to + j * 4, sum[i][j]);
    if (!p.to_partial) finish(p, out, row + i, col, p.n - col < kCols ? p.n - col : kCols);
  }
}

template <int kRows>
void rows_of(const PanelCall& p, int64_t row) {
  for (int64_t col = 0; col < panel_width(p.n); col += kCols) tile<kRows>(p, row, col);
}

void run(const PanelCall& p) {
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

// Four columns of four pairs, `ld` elements apart, become four steps.
inline void transpose(const uint16_t* p, int64_t ld, uint32_t* to, int64_t width) {
  uint32x4_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = vreinterpretq_u32_u16(vld1q_u16(p + i * ld));
  const uint32x4x2_t ab = vtrnq_u32(r[0], r[1]), cd = vtrnq_u32(r[2], r[3]);
  vst1q_u32(to, vcombine_u32(vget_low_u32(ab.val[0]), vget_low_u32(cd.val[0])));
  vst1q_u32(to + width, vcombine_u32(vget_low_u32(ab.val[1]), vget_low_u32(cd.val[1])));
  vst1q_u32(to + 2 * width, vcombine_u32(vget_high_u32(ab.val[0]), vget_high_u32(cd.val[0])));
  vst1q_u32(to + 3 * width, vcombine_u32(vget_high_u32(ab.val[1]), vget_high_u32(cd.val[1])));
}

// The pair of step s of column i; what is not there is zero.
inline uint32_t pair_of(const PackCall& c, int64_t i, int64_t s) {
  const auto* p = static_cast<const uint16_t*>(c.p);
  auto load = [&](int64_t k) -> uint32_t {
    return i < c.count && k < c.k ? p[c.k_contiguous ? i * c.ld + k : k * c.ld + i] : 0;
  };
  return load(2 * s) | load(2 * s + 1) << 16;
}

// k contiguous: sixteen steps of sixteen columns at a time stay within a few cache lines.
void pack_transposed(const PackCall& c) {
  const auto* p = static_cast<const uint16_t*>(c.p);
  auto* to = static_cast<uint32_t*>(c.to);
  const int64_t steps = (c.k + 1) / 2, whole = c.k / 2;
  for (int64_t i0 = 0; i0 < c.width; i0 += 16)
    for (int64_t s0 = 0; s0 < steps; s0 += 16) {
      const int64_t s1 = s0 + 16 < steps ? s0 + 16 : steps;
      for (int64_t i = i0; i < i0 + 16; i += 4)
        for (int64_t s = s0; s < s1; s += 4) {
          if (i + 4 <= c.count && s + 4 <= whole) {
            transpose(p + i * c.ld + 2 * s, c.ld, to + s * c.width + i, c.width);
            continue;
          }
          for (int64_t t = s; t < s1 && t < s + 4; ++t)
            for (int64_t j = i; j < i + 4; ++j) to[t * c.width + j] = pair_of(c, j, t);
        }
    }
}

// Columns contiguous: rows k and k + 1 are interleaved.
void pack_straight(const PackCall& c) {
  const int64_t steps = (c.k + 1) / 2;
  for (int64_t s = 0; s < steps; ++s) {
    uint32_t* to = static_cast<uint32_t*>(c.to) + s * c.width;
    const auto* from = static_cast<const uint16_t*>(c.p) + 2 * s * c.ld;
    int64_t i = 0;
    if (2 * s + 1 < c.k)
      for (; i + 8 <= c.count; i += 8) {
        const uint16x8x2_t zip = vzipq_u16(vld1q_u16(from + i), vld1q_u16(from + c.ld + i));
        vst1q_u32(to + i, vreinterpretq_u32_u16(zip.val[0]));
        vst1q_u32(to + i + 4, vreinterpretq_u32_u16(zip.val[1]));
      }
    for (; i < c.width; ++i) to[i] = pair_of(c, i, s);
  }
}

void pack(const PackCall& c) { c.k_contiguous ? pack_transposed(c) : pack_straight(c); }

}  // namespace
}  // namespace mxt::kernels::cpu

#pragma GCC pop_options

namespace mxt::kernels::cpu {

const Micro* neon_micro(Unit unit) {
  static const bool here = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  static const Micro pair{.name = "neon_bf16", .run = run, .pack = pack};
  return here && unit == Unit::kBf16Pair ? &pair : nullptr;
}

}  // namespace mxt::kernels::cpu

#else

namespace mxt::kernels::cpu {
const Micro* neon_micro(Unit) { return nullptr; }
}  // namespace mxt::kernels::cpu

#endif
