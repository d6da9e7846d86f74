// AVX2 with FMA, in fp32: 16 registers hold 12 sums (6 rows × 16 columns), two vectors of the panel and a broadcast.
// Operands are packed as [width/16][steps][16] on the right and, where it is transposed, [rows/6][steps][6] on the
// left, so that what a tile reads lies one after another: with a whole panel's stride it would fall into a few sets of
// the first cache. A bf16 right operand stays bf16, columns j and j + 8 in one word: a shift and a mask make the two
// vectors of a step.
#include "kernels/cpu/gemm/micro.h"

#include <hwy/base.h>

#include "base/types.h"

#if HWY_ARCH_X86 && (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
#include <immintrin.h>

#include <algorithm>
#include <type_traits>

HWY_PUSH_ATTRIBUTES("avx2,fma")

namespace mxt::kernels::cpu {
namespace {

constexpr int64_t kCols = 16;
constexpr int kMaxRows = 6, kPackedStep = 4 * kMaxRows;
constexpr int64_t kChunkUnits =
    16 << 10;  // of rows that go through all columns before the next: they stay in the second cache

inline __m256i mask_of(int64_t n) {  // the first n of 8 lanes
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(std::clamp<int64_t>(n, 0, 8))),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline __m256 widen(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
inline __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load8(const uint16_t* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
template <typename T>
inline __m256 load_first(const T* p, int64_t n) {  // zeros past n
  if (n >= 8) return load8(p);
  alignas(32) T v[8] = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return load8(v);
}

// To nearest, ties to even; NaN stays NaN.
inline __m128i narrow(__m256 v) {
  const __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// Up to eight of a finished row: scale, bias, previous value, store.
inline void finish(const PanelCall& p, __m256 v, int64_t row, int64_t col) {
  const int64_t at = row * p.ldc + col, n = p.n - col;
  if (n <= 0) return;
  __m256 add = _mm256_setzero_ps();
  if (p.bias)
    add = p.bias_bf16 ? load_first(static_cast<const uint16_t*>(p.bias) + col, n)
                      : load_first(static_cast<const float*>(p.bias) + col, n);
  const __m256 alpha = _mm256_set1_ps(p.alpha);
  if (!p.c_bf16) {
    float* c = static_cast<float*>(p.c) + at;
    if (n >= 8) {
      if (p.accumulate) add = _mm256_loadu_ps(c);
      _mm256_storeu_ps(c, _mm256_fmadd_ps(v, alpha, add));
    } else {
      const __m256i mask = mask_of(n);
      if (p.accumulate) add = _mm256_maskload_ps(c, mask);
      _mm256_maskstore_ps(c, mask, _mm256_fmadd_ps(v, alpha, add));
    }
    return;
  }
  uint16_t* c = static_cast<uint16_t*>(p.c) + at;
  if (p.accumulate) add = load_first(c, n);
  const __m128i out = narrow(_mm256_fmadd_ps(v, alpha, add));
  if (n >= 8) return _mm_storeu_si128(reinterpret_cast<__m128i*>(c), out);
  alignas(16) uint16_t some[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(some), out);
  for (int64_t i = 0; i < n; ++i) c[i] = some[i];
}

// The two vectors of a step.
inline void load_step(const float* b, __m256& b0, __m256& b1) { b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8); }
inline void load_step(const uint16_t* b, __m256& b0, __m256& b1) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  b0 = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  b1 = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}

// sums += a · (b0, b1). Written out because compilers, given steps side by side, load ahead for more registers than
// there are and spill sums.
inline void add_products(__m256 (&sum)[2], const char* a, __m256 b0, __m256 b1) {
  __m256 v;
  asm("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1"
      : "+x"(sum[0]), "+x"(sum[1]), "=&x"(v)
      : "m"(*reinterpret_cast<const float*>(a)), "x"(b0), "x"(b1));
}

// One step more of all sums. Rows 0 to 2 of A stand at a, a + r1 and a + r2, 3 to 5 as far from a3.
template <typename T, int kRows>
inline void add_step(__m256 (&sum)[kRows][2], const char* a, const char* a3, int64_t r1, int64_t r2, const T* b) {
  __m256 b0, b1;
  load_step(b, b0, b1);
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
    add_products(sum[i], (i < 3 ? a : a3) + (i % 3 == 0 ? 0 : i % 3 == 1 ? r1 : r2), b0, b1);
}

// kRows rows from `row` on against 16 columns from `col` on. T: of the packed right operand. kStep: bytes from a step
// of A to the next, 0 where the call says it.
template <typename T, int kRows, int kStep>
void tile(const PanelCall& p, int64_t row, int64_t col) {
  __m256 sum[kRows][2];
  float* partial = p.from_partial || p.to_partial ? p.partial + row * kPanel + col : nullptr;
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j)
      sum[i][j] = p.from_partial ? _mm256_loadu_ps(partial + i * kPanel + j * 8) : _mm256_setzero_ps();

  const T* b = static_cast<const T*>(p.b) + col * (p.b_steps ? p.b_steps : p.steps);
  const bool packed = kStep == kPackedStep;
  const char* a = static_cast<const char*>(p.a) + (packed ? row / kMaxRows * packed_six(p.steps) * 4 : row * p.a_row);
  const int64_t step = kStep ? kStep : p.a_step;
  int64_t r1 = packed ? 4 : p.a_row, r2 = 2 * r1;
  const char* a3 = a + 3 * r1;
  // The rows of the next tile are fetched while these are worked on, where they are met for the first time: a line of
  // each every 16 steps.
  const bool ahead = col == 0 && !packed && row + 2 * kRows <= p.m;
  for (int64_t s = 0; s < p.steps;) {
    if (ahead)
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) _mm_prefetch((i < 3 ? a : a3) + (kRows + i % 3) * r1, _MM_HINT_T0);
    // Four steps at a time: what counts them would take a sixth of the instructions, and where another thread has half
    // of the core their number decides.
    constexpr int kUnroll = 4;
    const int64_t end = std::min(p.steps, s + 16);
    for (; s + kUnroll <= end; s += kUnroll)
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u, a += step, a3 += step, b += kCols) {
        // Or the compiler computes rows' places beforehand, which takes registers or instructions.
        if (!packed) asm("" : "+r"(r1), "+r"(r2));
        add_step<T, kRows>(sum, a, a3, r1, r2, b);
      }
    for (; s < end; ++s, a += step, a3 += step, b += kCols) add_step<T, kRows>(sum, a, a3, r1, r2, b);
  }

  if (p.to_partial) {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) _mm256_storeu_ps(partial + i * kPanel + j * 8, sum[i][j]);
  } else if (!p.c_bf16 && !p.bias && col + kCols <= p.n) {
    const __m256 alpha = _mm256_set1_ps(p.alpha);
    float* c = static_cast<float*>(p.c) + row * p.ldc + col;
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i, c += p.ldc)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j)
        _mm256_storeu_ps(c + j * 8, p.accumulate ? _mm256_fmadd_ps(sum[i][j], alpha, _mm256_loadu_ps(c + j * 8))
                                                 : _mm256_mul_ps(sum[i][j], alpha));
  } else {
    alignas(32) float rows[kRows][kCols];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) _mm256_store_ps(rows[i] + j * 8, sum[i][j]);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < 2; ++j) finish(p, _mm256_load_ps(rows[i] + j * 8), row + i, col + j * 8);
  }
}

template <typename T, int kRows, int kStep>
void last_rows(const PanelCall& p, int64_t row, int64_t rows, int64_t col) {
  if constexpr (kRows > 0) {
    if (rows == kRows)
      tile<T, kRows, kStep>(p, row, col);
    else
      last_rows<T, kRows - 1, kStep>(p, row, rows, col);
  }
}

template <typename T, int kStep>
void run_rows(const PanelCall& p) {
  const int64_t width = panel_width(p.n), chunk = std::max<int64_t>(48, kChunkUnits / p.steps / kMaxRows * kMaxRows);
  for (int64_t first = 0; first < p.m; first += chunk) {
    const int64_t end = std::min(p.m, first + chunk);
    for (int64_t col = 0; col < width; col += kCols) {
      int64_t row = first;
      // Packed rows lie in sixes. Elsewhere the last eight are two fours: two rows alone wait for their own sums.
      const int64_t last = p.packed || (end - first) % kMaxRows != 2 || end - first < 8 ? end : end - 8;
      for (; row + kMaxRows <= last; row += kMaxRows) tile<T, kMaxRows, kStep>(p, row, col);
      if (last < end) tile<T, 4, kStep>(p, row, col), tile<T, 4, kStep>(p, row + 4, col), row = end;
      last_rows<T, kMaxRows - 1, kStep>(p, row, end - row, col);
    }
  }
}

template <typename T>
void run(const PanelCall& p) {
  p.packed ? run_rows<T, kPackedStep>(p) : p.a_step == 4 ? run_rows<T, 4>(p) : run_rows<T, 0>(p);
}

inline void transpose8(__m256 r[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]), t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20), t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// The first six of eight.
inline void store6(float* p, __m256 v) {
  _mm_storeu_ps(p, _mm256_castps256_ps128(v));
  _mm_storel_pi(reinterpret_cast<__m64*>(p + 4), _mm256_extractf128_ps(v, 1));
}

// Of `to` as the right operand is packed: 16 columns of a step.
inline void store_columns(float* to, const float* from, int64_t n) {
  _mm256_storeu_ps(to, load_first(from, std::clamp<int64_t>(n, 0, 8)));
  _mm256_storeu_ps(to + 8, load_first(from + 8, std::clamp<int64_t>(n - 8, 0, 8)));
}
inline void store_columns(uint16_t* to, const uint16_t* from, int64_t n) {
  alignas(16) uint16_t some[kCols] = {};
  if (n < kCols) {
    for (int64_t i = 0; i < n; ++i) some[i] = from[i];
    from = some;
  }
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)),
                high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi16(low, high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm_unpackhi_epi16(low, high));
}

// Columns contiguous: a row of memory at a time, so that reads are long runs, into blocks, `down` apart: sixteen
// columns on the right, six on the left.
template <typename T, bool kLeft>
void pack_straight(const PackCall& c) {
  using Packed = std::conditional_t<kLeft, float, T>;
  constexpr int64_t kWidth = kLeft ? kMaxRows : kCols;
  const int64_t down = c.down ? c.down : kLeft ? packed_six(c.k) : kCols * c.k;
  const T* from = static_cast<const T*>(c.p);
  Packed* to = static_cast<Packed*>(c.to);
  for (int64_t s = 0; s < c.k; ++s, from += c.ld, to += kWidth) {
    if (s + 8 < c.k)
      for (int64_t i = 0; i < c.count; i += 64 / static_cast<int64_t>(sizeof(T)))
        _mm_prefetch(reinterpret_cast<const char*>(from + 8 * c.ld + i), _MM_HINT_T0);
    Packed* out = to;
    int64_t i = 0;
    if constexpr (kLeft) {
      for (; i < c.count - 7; i += kWidth, out += down) store6(out, load8(from + i));
      for (; i < c.count; i += kWidth, out += down) store6(out, load_first(from + i, c.count - i));
    } else {
      for (; i + kCols <= c.count; i += kCols, out += down) store_columns(out, from + i, kCols);
      if (i < c.width) store_columns(out, from + i, c.count - i);
    }
  }
}

// k contiguous: columns by eight steps are transposed in registers, floats eight columns at a time, pairs of bf16
// sixteen.
inline __m256 load_column(const float* from, int64_t /*ld*/, int64_t columns, int64_t steps) {
  return columns > 0 ? load_first(from, steps) : _mm256_setzero_ps();
}
inline __m128i load_steps(const uint16_t* from, int64_t steps) {
  if (steps >= 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  alignas(16) uint16_t some[8] = {};
  for (int64_t i = 0; i < steps; ++i) some[i] = from[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(some));
}
inline __m256 load_column(const uint16_t* from, int64_t ld, int64_t columns, int64_t steps) {
  const __m128i low = columns > 0 ? load_steps(from, steps) : _mm_setzero_si128(),
                high = columns > 8 ? load_steps(from + 8 * ld, steps) : _mm_setzero_si128();
  return _mm256_castsi256_ps(_mm256_setr_m128i(_mm_unpacklo_epi16(low, high), _mm_unpackhi_epi16(low, high)));
}

template <typename T>
void pack_transposed(const PackCall& c) {
  constexpr int64_t kWords = kCols * static_cast<int64_t>(sizeof(T)) / 4;  // of a step
  constexpr int64_t kAtOnce = 8 * kCols / kWords;                          // columns
  const T* from = static_cast<const T*>(c.p);
  const int64_t down = (c.down ? c.down : kCols * c.k) / kCols * kWords;
  for (int64_t i0 = 0; i0 < c.width; i0 += kAtOnce) {
    float* out = static_cast<float*>(c.to) + i0 / kCols * down + i0 % kCols;
    for (int64_t s0 = 0; s0 < c.k; s0 += 8) {
      const int64_t steps = std::min<int64_t>(8, c.k - s0);
      __m256 r[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) r[i] = load_column(from + (i0 + i) * c.ld + s0, c.ld, c.count - i0 - i, steps);
      transpose8(r);
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s)
        if (s < steps) _mm256_storeu_ps(out + (s0 + s) * kWords, r[s]);
    }
  }
}

// Rows as they are, but floats, and where they do not clash. Broadcasting from rows costs as little as from packed
// sixes; transposing them would cost a tenth of a product with 128 columns.
template <typename T>
void copy_rows(const PackCall& c) {
  const int64_t down = copied_row(c.k), whole = c.k / 8 * 8;
  for (int64_t i = 0; i < c.count; ++i) {
    const T* from = static_cast<const T*>(c.p) + i * c.ld;
    float* to = static_cast<float*>(c.to) + i * down;
    for (int64_t s = 0; s < whole; s += 8) _mm256_storeu_ps(to + s, load8(from + s));
    if (whole < c.k) _mm256_storeu_ps(to + whole, load_first(from + whole, c.k - whole));
  }
}

template <typename T>
void pack(const PackCall& c) {
  if (!c.k_contiguous)
    c.left ? pack_straight<T, true>(c) : pack_straight<T, false>(c);
  else
    c.left ? copy_rows<T>(c) : pack_transposed<T>(c);
}

}  // namespace
}  // namespace mxt::kernels::cpu

HWY_POP_ATTRIBUTES

namespace mxt::kernels::cpu {

const Micro* avx2_micro(Unit unit) {
  static const bool here = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!here || unit == Unit::kBf16Pair) return nullptr;
  static const Micro f32{"avx2", run<float>, pack<float>, 2048, true},
      widened{"avx2", run<uint16_t>, pack<uint16_t>, 2048, true, 2};
  return unit == Unit::kF32 ? &f32 : &widened;
}

}  // namespace mxt::kernels::cpu

#else

namespace mxt::kernels::cpu {
const Micro* avx2_micro(Unit) { return nullptr; }
}  // namespace mxt::kernels::cpu

#endif
