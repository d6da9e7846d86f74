// AVX-512 with bf16 dot products (Zen 4 and later, Cooper Lake, Sapphire Rapids): VDPBF16PS adds both products of a
// pair to the fp32 sum. 32 registers hold 24 sums (6 rows × 64 columns and the like), the panel's vectors and one
// broadcast.
#include "kernels/cpu/gemm/micro.h"

#include <hwy/base.h>

#include <algorithm>

#include "base/error.h"
#include "base/types.h"

#if HWY_ARCH_X86 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own _mm512_undefined
#endif
#include <immintrin.h>

#include "kernels/cpu/gemm/avx512-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")

namespace mxt::kernels::cpu {
namespace {

constexpr int kMaxRows = 12;

template <bool kPair>
inline __m512 multiply_add(__m512 sum, __m512i b, __m512i a) {
  if constexpr (kPair)
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  else
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
}

// One vector of a finished row: scale, bias, previous value, store.
inline void finish(const PanelCall& p, __m512 v, int64_t row, int64_t col, __mmask16 mask) {
  const int64_t at = row * p.ldc + col;
  const __m512 alpha = _mm512_set1_ps(p.alpha);
  __m512 add = _mm512_setzero_ps();
  if (p.bias)
    add = p.bias_bf16 ? load_bf16(mask, static_cast<const uint16_t*>(p.bias) + col)
                      : _mm512_maskz_loadu_ps(mask, static_cast<const float*>(p.bias) + col);
  if (p.c_bf16) {
    uint16_t* c = static_cast<uint16_t*>(p.c) + at;
    if (p.accumulate) add = load_bf16(mask, c);
    _mm256_mask_storeu_epi16(c, mask, (__m256i)_mm512_cvtneps_pbh(_mm512_fmadd_ps(v, alpha, add)));
  } else {
    float* c = static_cast<float*>(p.c) + at;
    if (p.accumulate) add = _mm512_maskz_loadu_ps(mask, c);
    _mm512_mask_storeu_ps(c, mask, _mm512_fmadd_ps(v, alpha, add));
  }
}

// kRows rows from `row` on against kVecs vectors of 16 columns.
template <bool kPair, int kRows, int kVecs>
void tile(const PanelCall& p, int64_t row) {
  __m512 sum[kRows][kVecs];
  float* partial = p.from_partial || p.to_partial ? p.partial + row * kPanel : nullptr;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = p.from_partial ? _mm512_load_ps(partial + i * kPanel + j * 16) : _mm512_setzero_ps();

  // The rows of C that come next: their stride is too long for the hardware to guess.
  if (p.far && !p.to_partial && row + 2 * kRows <= p.m) {
    const int64_t size = p.c_bf16 ? 2 : 4;
    const char* next = static_cast<const char*>(p.c) + (row + kRows) * p.ldc * size;
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i, next += p.ldc * size)
      for (int64_t j = 0; j < kVecs * 16 * size; j += 64) __builtin_prefetch(next + j, 1);
  }

  const char* a = static_cast<const char*>(p.a) + row * p.a_row;
  const char* b = static_cast<const char*>(p.b);
  const int64_t r1 = p.a_row, r3 = 3 * r1, r5 = 5 * r1, r7 = 7 * r1, r9 = 9 * r1, r11 = 11 * r1;
  const int64_t offset[kMaxRows] = {0, r1, 2 * r1, r3, 4 * r1, r5, 2 * r3, r7, 8 * r1, r9, 2 * r5, r11};
  const int64_t b_step = p.b_step ? p.b_step : kVecs * 64;
  for (int64_t s = 0; s < p.steps; ++s) {
    __m512i bv[kVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) bv[j] = _mm512_loadu_si512(b + j * 64);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      int unit;
      __builtin_memcpy(&unit, a + offset[i], 4);
      const __m512i av = _mm512_set1_epi32(unit);
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) sum[i][j] = multiply_add<kPair>(sum[i][j], bv[j], av);
    }
    a += p.a_step;
    b += b_step;
  }

  const __mmask16 last = mask_of(p.n - (kVecs - 1) * 16);
  if (p.to_partial) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) _mm512_store_ps(partial + i * kPanel + j * 16, sum[i][j]);
    return;
  }
  // The usual product: with a short k what decides here for each vector shows.
  if (p.alpha == 1 && !p.bias && !p.accumulate) {
    const int64_t ldc = p.ldc;
    if (p.c_bf16) {
      uint16_t* c = static_cast<uint16_t*>(p.c) + row * ldc;
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i, c += ldc)
#pragma GCC unroll 4
        for (int j = 0; j < kVecs; ++j)
          _mm256_mask_storeu_epi16(c + j * 16, j + 1 < kVecs ? 0xffff : last, (__m256i)_mm512_cvtneps_pbh(sum[i][j]));
    } else {
      float* c = static_cast<float*>(p.c) + row * ldc;
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i, c += ldc)
#pragma GCC unroll 4
        for (int j = 0; j < kVecs; ++j) _mm512_mask_storeu_ps(c + j * 16, j + 1 < kVecs ? 0xffff : last, sum[i][j]);
    }
    return;
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) finish(p, sum[i][j], row + i, j * 16, j + 1 < kVecs ? 0xffff : last);
}

template <bool kPair, int kVecs, int kRows>
void last_rows(const PanelCall& p, int64_t row) {
  if constexpr (kRows > 0) {
    if (p.m - row == kRows)
      tile<kPair, kRows, kVecs>(p, row);
    else
      last_rows<kPair, kVecs, kRows - 1>(p, row);
  }
}

template <bool kPair, int kVecs, int kRows>
void rows(const PanelCall& p) {
  int64_t row = 0;
  for (; row + kRows <= p.m; row += kRows) tile<kPair, kRows, kVecs>(p, row);
  last_rows<kPair, kVecs, kRows - 1>(p, row);
}

template <bool kPair>
void run(const PanelCall& p) {
  switch (panel_width(p.n) / 16) {
    case 1:
      return rows<kPair, 1, 12>(p);
    case 2:
      return rows<kPair, 2, 12>(p);
    case 3:
      return rows<kPair, 3, 8>(p);
    default:
      return rows<kPair, 4, 6>(p);
  }
}

// Reads up to 16 units of one row.
template <Unit kUnit>
inline __m512i load_units(const void* p, int64_t at, __mmask16 mask) {
  if constexpr (kUnit == Unit::kF32)
    return _mm512_maskz_loadu_epi32(mask, static_cast<const float*>(p) + at);
  else
    return _mm512_castps_si512(load_bf16(mask, static_cast<const uint16_t*>(p) + at));
}

// The same for sixteen whole rows of units in memory: 16 bytes of four rows at a time go straight into the four lanes
// of a register, which saves half of the shuffles.
inline void transpose16_from(const char* from, int64_t row, uint32_t* to, int64_t width) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m512i t[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const char* p = from + j * row + q * 16;
      t[j] = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      t[j] = _mm512_mask_broadcast_i32x4(t[j], 0x00f0, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 4 * row)));
      t[j] = _mm512_mask_broadcast_i32x4(t[j], 0x0f00, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * row)));
      t[j] = _mm512_mask_broadcast_i32x4(t[j], 0xf000, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 12 * row)));
    }
    const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
    const __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
    _mm512_store_si512(to + (4 * q) * width, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(to + (4 * q + 1) * width, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(to + (4 * q + 2) * width, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(to + (4 * q + 3) * width, _mm512_unpackhi_epi64(b, d));
  }
}

// k contiguous: 16×16 blocks of units are transposed. An odd last bf16 is paired with zero.
template <Unit kUnit, bool kWhole>
inline void pack_block(const PackCall& c, int64_t i0, int64_t s0, int64_t steps) {
  constexpr bool kPair = kUnit == Unit::kBf16Pair;
  constexpr int64_t kSize = kUnit == Unit::kF32 ? 4 : 2, kPerStep = kPair ? 2 : 1;
  const char* from = static_cast<const char*>(c.p) + (i0 * c.ld + kPerStep * s0) * kSize;
  const int64_t left = c.k - kPerStep * s0, row = c.ld * kSize;
  uint32_t* to = static_cast<uint32_t*>(c.to) + s0 * c.width + i0;
  if constexpr (kWhole && kUnit != Unit::kBf16Widened) {
    // The next sixteen rows at the same place: hardware does not follow sixteen short rows at once.
#pragma GCC unroll 16
    for (int i = 16; i < 32; ++i) _mm_prefetch(from + i * row, _MM_HINT_T0);
    return transpose16_from(from, row, to, c.width);
  }
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const void* p = from + i * row;
    if (!kWhole && i0 + i >= c.count) {
      r[i] = _mm512_setzero_si512();
      continue;
    }
    if constexpr (kPair)
      r[i] = kWhole ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(left >= 32 ? 0xffffffffu : (1u << left) - 1, p);
    else
      r[i] = load_units<kUnit>(p, 0, kWhole ? 0xffff : mask_of(left));
  }
  transpose16(r);
#pragma GCC unroll 16
  for (int s = 0; s < 16; ++s)
    if (kWhole || s0 + s < steps) _mm512_store_si512(to + s * c.width, r[s]);
}

template <Unit kUnit>
void pack_transposed(const PackCall& c) {
  constexpr int64_t kPerStep = kUnit == Unit::kBf16Pair ? 2 : 1;
  const int64_t steps = (c.k + kPerStep - 1) / kPerStep, whole = c.k / (16 * kPerStep) * 16;
  for (int64_t i0 = 0; i0 < c.width; i0 += 16) {
    int64_t s0 = 0;
    if (i0 + 16 <= c.count)
      for (; s0 < whole; s0 += 16) pack_block<kUnit, true>(c, i0, s0, steps);
    for (; s0 < steps; s0 += 16) pack_block<kUnit, false>(c, i0, s0, steps);
  }
}

// Columns contiguous: rows k and k+1 are interleaved (bf16) or copied (float).
template <Unit kUnit>
void pack_straight(const PackCall& c) {
  constexpr bool kPair = kUnit == Unit::kBf16Pair;
  constexpr int64_t kSize = kUnit == Unit::kF32 ? 4 : 2, kPerStep = kPair ? 2 : 1, kRowsAhead = 24;
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const int64_t steps = (c.k + kPerStep - 1) / kPerStep, row = c.ld * kSize;
  for (int64_t s = 0; s < steps; ++s) {
    uint32_t* to = static_cast<uint32_t*>(c.to) + s * c.width;
    const char* from = static_cast<const char*>(c.p) + kPerStep * s * row;
    const bool two = kPair && 2 * s + 1 < c.k;
    if (s + kRowsAhead / kPerStep < steps)
      for (int64_t i = 0; i < c.count * kSize; i += 64) {
        _mm_prefetch(from + kRowsAhead * row + i, _MM_HINT_T0);
        if (kPair) _mm_prefetch(from + (kRowsAhead + 1) * row + i, _MM_HINT_T0);
      }
    int64_t i = 0;
    if (two)
      for (; i + 32 <= c.count; i += 32) {
        const __m512i r0 = _mm512_loadu_si512(from + i * 2), r1 = _mm512_loadu_si512(from + row + i * 2);
        _mm512_store_si512(to + i, _mm512_permutex2var_epi16(r0, low, r1));
        _mm512_store_si512(to + i + 16, _mm512_permutex2var_epi16(r0, high, r1));
      }
    for (; i < c.width; i += 16) {
      const __mmask16 mask = c.count > i ? mask_of(c.count - i) : 0;
      __m512i v;
      if constexpr (kPair) {
        v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + i * 2));
        if (two)
          v = _mm512_or_si512(v,
                              _mm512_castps_si512(load_bf16(mask, reinterpret_cast<const uint16_t*>(from + row) + i)));
      } else {
        v = load_units<kUnit>(from, i, mask);
      }
      _mm512_store_si512(to + i, v);
    }
  }
}

template <Unit kUnit>
void pack(const PackCall& c) {
  c.k_contiguous ? pack_transposed<kUnit>(c) : pack_straight<kUnit>(c);
}

// What TDPBF16PS does, sixteen steps after another: even and odd elements apart, then their sum is added.
template <int kRows, int kVecs>
void tile_sums(const PanelCall& p, float* sums) {
  constexpr int64_t kSteps = 16;
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const char *a = static_cast<const char*>(p.a), *b = static_cast<const char*>(p.b);
  for (int64_t begin = 0; begin < p.steps; begin += kSteps) {
    __m512 even[kRows][kVecs], odd[kRows][kVecs];
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) even[i][j] = odd[i][j] = _mm512_setzero_ps();
    for (int64_t s = begin; s < std::min(begin + kSteps, p.steps); ++s, a += 4, b += kVecs * 64) {
      __m512 a0[kRows], a1[kRows];
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) {
        int unit;
        __builtin_memcpy(&unit, a + i * p.a_row, 4);
        const __m512i v = _mm512_set1_epi32(unit);
        a0[i] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)), a1[i] = _mm512_castsi512_ps(_mm512_and_si512(v, high));
      }
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) {
        const __m512i v = _mm512_load_si512(b + j * 64);
        const __m512 b0 = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
                     b1 = _mm512_castsi512_ps(_mm512_and_si512(v, high));
#pragma GCC unroll 2
        for (int i = 0; i < kRows; ++i)
          even[i][j] = _mm512_fmadd_ps(a0[i], b0, even[i][j]), odd[i][j] = _mm512_fmadd_ps(a1[i], b1, odd[i][j]);
      }
    }
    const float* before = begin > 0 ? sums : p.from_partial ? p.partial : nullptr;
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) {
        const int64_t at = i * kPanel + j * 16;
        const __m512 c = before ? _mm512_load_ps(before + at) : _mm512_setzero_ps();
        _mm512_store_ps(sums + at, _mm512_add_ps(c, _mm512_add_ps(even[i][j], odd[i][j])));
      }
  }
}

template <int kRows>
HWY_NOINLINE void tile_sums(const PanelCall& p, float* sums) {
  switch (panel_width(p.n) / 16) {
    case 1:
      return tile_sums<kRows, 1>(p, sums);
    case 2:
      return tile_sums<kRows, 2>(p, sums);
    case 3:
      return tile_sums<kRows, 3>(p, sums);
    default:
      return tile_sums<kRows, 4>(p, sums);
  }
}

}  // namespace

void avx512_tile_sums(const PanelCall& p, float* sums) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // denormals count as zero, as for tiles
  p.m == 1 ? tile_sums<1>(p, sums) : tile_sums<kFewTileRows>(p, sums);
  _mm_setcsr(before);
}

void avx512_finish(const PanelCall& p, const float* sums, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t col = 0; col < p.n; col += 16)
      finish(p, _mm512_load_ps(sums + i * kPanel + col), row + i, col, mask_of(p.n - col));
}

}  // namespace mxt::kernels::cpu

HWY_POP_ATTRIBUTES

namespace mxt::kernels::cpu {

const Micro* avx512_micro(Unit unit) {
  static const bool here = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512bf16");
  if (!here) return nullptr;
  static const Micro f32{.name = "avx512", .run = run<false>, .pack = pack<Unit::kF32>, .strided = true},
      pair{"avx512_bf16", run<true>, pack<Unit::kBf16Pair>}, widened{"avx512", run<false>, pack<Unit::kBf16Widened>};
  return unit == Unit::kF32 ? &f32 : unit == Unit::kBf16Pair ? &pair : &widened;
}

}  // namespace mxt::kernels::cpu

#else

namespace mxt::kernels::cpu {
const Micro* avx512_micro(Unit) { return nullptr; }
void avx512_finish(const PanelCall&, const float*, int64_t, int64_t) { MXT_ASSERT(!"avx512: not on this machine"); }
void avx512_tile_sums(const PanelCall&, float*) { MXT_ASSERT(!"avx512: not on this machine"); }
}  // namespace mxt::kernels::cpu

#endif
