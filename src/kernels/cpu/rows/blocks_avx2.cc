// The AVX2 kernels. A 32-byte vector of weights has four neighbours along k of eight rows; four values of x, broadcast, multiply all
// eight: sums end up one row a lane, and nothing is added across lanes.
#include "kernels/cpu/rows/blocks.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

namespace mxt::kernels::cpu {
namespace {

#define MXT_AVX2 __attribute__((target("avx2,fma,f16c")))

MXT_AVX2 inline __m256 halves(const std::byte* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
MXT_AVX2 inline __m256i four(const int8_t* x) {
  int32_t v;
  std::memcpy(&v, x, 4);
  return _mm256_set1_epi32(v);
}

// u8 · s8 pairs to s16: 15·127·2 a vector, eight vectors of a block stay below 2¹⁵.
template <int kN>
MXT_AVX2 void q4(const BlockTile& t) {
  const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256 acc[kN], mins[kN];
  for (int n = 0; n < kN; ++n) acc[n] = mins[n] = _mm256_setzero_ps();
  const std::byte* p = t.group;
  for (int64_t b = 0; b < t.blocks; ++b, p += 160) {
    __m256i sum[kN];
    for (int n = 0; n < kN; ++n) sum[n] = _mm256_setzero_si256();
    for (int j = 0; j < 4; ++j) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 + 32 * j));
      const __m256i a = _mm256_and_si256(w, low), c = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
      for (int n = 0; n < kN; ++n) {
        const int8_t* x = t.x[n] + b * 32 + 8 * j;
        sum[n] = _mm256_add_epi16(sum[n], _mm256_maddubs_epi16(a, four(x)));
        sum[n] = _mm256_add_epi16(sum[n], _mm256_maddubs_epi16(c, four(x + 4)));
      }
    }
    const __m256 d = halves(p), m = halves(p + 16);
    for (int n = 0; n < kN; ++n) {
      const __m256 s = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[n], ones));
      acc[n] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(t.dx[n][b])), s, acc[n]);
      mins[n] = _mm256_fmadd_ps(m, _mm256_set1_ps(t.sx[n][b]), mins[n]);
    }
  }
  for (int n = 0; n < kN; ++n) _mm256_storeu_ps(t.out[n], _mm256_add_ps(acc[n], mins[n]));
}

// |w| · (x with w's sign), since one factor must be unsigned: 128·127·2 stays below 2¹⁵, two such sums do not, so s32 from there on.
template <int kN>
MXT_AVX2 void q8(const BlockTile& t) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 acc[kN];
  for (int n = 0; n < kN; ++n) acc[n] = _mm256_setzero_ps();
  const std::byte* p = t.group;
  for (int64_t b = 0; b < t.blocks; ++b, p += 272) {
    __m256i sum[kN];
    for (int n = 0; n < kN; ++n) sum[n] = _mm256_setzero_si256();
    for (int j = 0; j < 8; ++j) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16 + 32 * j)), magnitude = _mm256_abs_epi8(w);
      for (int n = 0; n < kN; ++n) {
        const __m256i x = _mm256_sign_epi8(four(t.x[n] + b * 32 + 4 * j), w);
        sum[n] = _mm256_add_epi32(sum[n], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, x), ones));
      }
    }
    const __m256 d = halves(p);
    for (int n = 0; n < kN; ++n)
      acc[n] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(t.dx[n][b])), _mm256_cvtepi32_ps(sum[n]), acc[n]);
  }
  for (int n = 0; n < kN; ++n) _mm256_storeu_ps(t.out[n], _mm256_add_ps(acc[n], _mm256_setzero_ps()));
}

void run_q4(const BlockTile& t) {
  switch (t.tokens) {
    case 1: return q4<1>(t);
    case 2: return q4<2>(t);
    case 3: return q4<3>(t);
    default: return q4<4>(t);
  }
}
void run_q8(const BlockTile& t) {
  switch (t.tokens) {
    case 1: return q8<1>(t);
    case 2: return q8<2>(t);
    case 3: return q8<3>(t);
    default: return q8<4>(t);
  }
}

MXT_AVX2 void round_block(const float* x, int8_t* q, float* d, float* s) {
  __m256 v[4];
  __m256 top = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    top = _mm256_max_ps(top, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
  }
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  h = _mm_max_ss(h, _mm_movehdup_ps(h));
  const float largest = _mm_cvtss_f32(h), scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0.0f;
  __m256i w[4];
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    w[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    sum = _mm256_add_epi32(sum, w[i]);
  }
  // Packing works on 128-bit halves: the permutation puts the fours back in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(w[0], w[1]), _mm256_packs_epi32(w[2], w[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  __m128i i = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  i = _mm_add_epi32(i, _mm_shuffle_epi32(i, 0x4E));
  i = _mm_add_epi32(i, _mm_shuffle_epi32(i, 0xB1));
  *d = scale;
  *s = scale * static_cast<float>(_mm_cvtsi128_si32(i));
}

}  // namespace

const BlockKernels* avx2_blocks() {
  static const BlockKernels k{run_q4, run_q8, round_block};
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  return has ? &k : nullptr;
}

}  // namespace mxt::kernels::cpu
#else
namespace mxt::kernels::cpu {
const BlockKernels* avx2_blocks() { return nullptr; }
}  // namespace mxt::kernels::cpu
#endif
