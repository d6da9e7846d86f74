#include "base/sha256_lanes.h"

#include <cstring>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mxt {

#if defined(__x86_64__)

namespace {

// Fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define MXT_SHA __attribute__((target("sha,sse4.1,ssse3")))

// The instructions keep a state's words as (a, b, e, f) and (c, d, g, h), highest first.
struct Words {
  __m128i abef, cdgh;
};
MXT_SHA inline Words to_words(const Sha256State& s) {
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s.h.data())), 0xB1),
                hgfe = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s.h.data() + 4)), 0x1B);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xF0)};
}
MXT_SHA inline void from_words(const Words& w, Sha256State& s) {
  const __m128i feba = _mm_shuffle_epi32(w.abef, 0x1B), dchg = _mm_shuffle_epi32(w.cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(s.h.data()), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(s.h.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

template <int kLanes>
MXT_SHA void compress(Sha256State* const (&states)[kLanes], const uint8_t* const (&data)[kLanes], size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  Words w[kLanes];
#pragma GCC unroll 2
  for (int l = 0; l < kLanes; ++l) w[l] = to_words(*states[l]);
  for (size_t block = 0; block < blocks; ++block) {
    Words begin[kLanes];
    __m128i m[kLanes][4];  // the last sixteen words of the schedule
#pragma GCC unroll 2
    for (int l = 0; l < kLanes; ++l) {
      begin[l] = w[l];
      const auto* from = reinterpret_cast<const __m128i*>(data[l] + block * 64);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) m[l][i] = _mm_shuffle_epi8(_mm_loadu_si128(from + i), big_endian);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {  // four rounds each
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * i));
#pragma GCC unroll 2
      for (int l = 0; l < kLanes; ++l) {
        const __m128i sum = _mm_add_epi32(m[l][i % 4], k);
        w[l].cdgh = _mm_sha256rnds2_epu32(w[l].cdgh, w[l].abef, sum);
        w[l].abef = _mm_sha256rnds2_epu32(w[l].abef, w[l].cdgh, _mm_shuffle_epi32(sum, 0x0E));
        if (i < 12) {
          const __m128i seven_back = _mm_alignr_epi8(m[l][(i + 3) % 4], m[l][(i + 2) % 4], 4);
          m[l][i % 4] = _mm_sha256msg2_epu32(
              _mm_add_epi32(_mm_sha256msg1_epu32(m[l][i % 4], m[l][(i + 1) % 4]), seven_back), m[l][(i + 3) % 4]);
        }
      }
    }
#pragma GCC unroll 2
    for (int l = 0; l < kLanes; ++l) {
      w[l].abef = _mm_add_epi32(w[l].abef, begin[l].abef);
      w[l].cdgh = _mm_add_epi32(w[l].cdgh, begin[l].cdgh);
    }
  }
#pragma GCC unroll 2
  for (int l = 0; l < kLanes; ++l) from_words(w[l], *states[l]);
}

}  // namespace

bool has_sha256_lanes() {
  static const bool here = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("ssse3") &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 29)) != 0;
  }();
  return here;
}

void sha256_two(Sha256State& a, const uint8_t* x, Sha256State& b, const uint8_t* y, size_t blocks) {
  Sha256State* const states[] = {&a, &b};
  const uint8_t* const data[] = {x, y};
  compress<2>(states, data, blocks);
}
void sha256_one(Sha256State& s, const uint8_t* x, size_t blocks) {
  Sha256State* const states[] = {&s};
  const uint8_t* const data[] = {x};
  compress<1>(states, data, blocks);
}

#else

bool has_sha256_lanes() { return false; }
void sha256_two(Sha256State&, const uint8_t*, Sha256State&, const uint8_t*, size_t) { MXT_ASSERT(has_sha256_lanes()); }
void sha256_one(Sha256State&, const uint8_t*, size_t) { MXT_ASSERT(has_sha256_lanes()); }

#endif

Digest sha256_end(Sha256State s, const uint8_t* tail, uint64_t bytes) {
  uint8_t last[128] = {};
  const size_t left = bytes % 64, whole = left < 56 ? 64 : 128;
  if (left > 0) std::memcpy(last, tail, left);
  last[left] = 0x80;
  for (size_t i = 0; i < 8; ++i) last[whole - 1 - i] = static_cast<uint8_t>(bytes * 8 >> 8 * i);
  sha256_one(s, last, whole / 64);
  Digest d;
  for (size_t i = 0; i < 32; ++i) d[i] = static_cast<uint8_t>(s.h[i / 4] >> (24 - 8 * (i % 4)));
  return d;
}

}  // namespace mxt
