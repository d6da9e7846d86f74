// Is it UTF-8, and where may NFC change it: one pass over a text.
#include <algorithm>
#include <array>
#include <bit>

#include "tokenizer/text/unicode.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace mxt::tokenizer::unicode {

TextScan scan_text_plain(std::string_view s, bool nfc) {
  const Table& table = Table::get();
  TextScan out;
  const char* p = s.data();
  const char* const end = p + s.size();
  const auto cont = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (p < end) {
    while (end - p >= 32) {
      uint64_t w[4];
      std::memcpy(w, p, 32);
      if (((w[0] | w[1] | w[2] | w[3]) & 0x8080808080808080ull) != 0) break;
      p += 32;
    }
    while (p < end && static_cast<signed char>(*p) >= 0) ++p;
    for (int left = 16; left > 0 && p < end; --left) {  // some characters before looking for long ASCII again
      const unsigned char b0 = static_cast<unsigned char>(*p);
      if (b0 < 0x80) {
        ++p;
        continue;
      }
      out.ascii = false;
      const ptrdiff_t room = end - p;
      uint32_t c;
      size_t n;
      if (b0 >= 0xC2 && b0 <= 0xDF) {
        if (room < 2 || !cont(p[1])) return out.valid = false, out;
      } else if ((b0 & 0xF0) == 0xE0) {
        if (room < 3 || !cont(p[1]) || !cont(p[2])) return out.valid = false, out;
        const unsigned char b1 = static_cast<unsigned char>(p[1]);
        if ((b0 == 0xE0 && b1 < 0xA0) || (b0 == 0xED && b1 > 0x9F)) return out.valid = false, out;
      } else if (b0 >= 0xF0 && b0 <= 0xF4) {
        if (room < 4 || !cont(p[1]) || !cont(p[2]) || !cont(p[3])) return out.valid = false, out;
        const unsigned char b1 = static_cast<unsigned char>(p[1]);
        if ((b0 == 0xF0 && b1 < 0x90) || (b0 == 0xF4 && b1 > 0x8F)) return out.valid = false, out;
      } else {
        return out.valid = false, out;
      }
      c = decode(p, n);
      if (nfc && (table[c] & kNfcUnsafe)) [[unlikely]]
        out.unsafe.push_back(static_cast<size_t>(p - s.data()));
      p += n;
    }
  }
  return out;
}

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

// Errors by the first byte's high and low half and the second byte's high half: a bit that stands in all three is one
// (Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte", 2021).
constexpr uint8_t kTooShort = 1, kTooLong = 2, kOverlong3 = 4, kTooLarge = 8, kSurrogate = 16, kOverlong2 = 32,
                  kTooLarge1000 = 64, kOverlong4 = 64, kTwoConts = 128, kCarry = kTooShort | kTooLong | kTwoConts;
using Nibbles = std::array<uint8_t, 16>;
constexpr Nibbles kFirstHigh = [] {
  Nibbles t{};
  for (size_t i = 0; i < 8; ++i) t[i] = kTooLong;
  for (size_t i = 8; i < 12; ++i) t[i] = kTwoConts;
  t[12] = kTooShort | kOverlong2;
  t[13] = kTooShort;
  t[14] = kTooShort | kOverlong3 | kSurrogate;
  t[15] = kTooShort | kTooLarge | kTooLarge1000 | kOverlong4;
  return t;
}();
constexpr Nibbles kFirstLow = [] {
  Nibbles t{};
  for (size_t i = 0; i < 16; ++i)
    t[i] = i < 4 ? kCarry : i == 4 ? kCarry | kTooLarge : kCarry | kTooLarge | kTooLarge1000;
  t[0] |= kOverlong2 | kOverlong3 | kOverlong4;
  t[1] |= kOverlong2;
  t[13] |= kSurrogate;
  return t;
}();
constexpr Nibbles kSecondHigh = [] {
  Nibbles t{};
  for (size_t i = 0; i < 16; ++i) t[i] = i < 8 || i > 11 ? kTooShort : kTooLong | kOverlong2 | kTwoConts;
  t[8] |= kOverlong3 | kTooLarge1000 | kOverlong4;
  t[9] |= kOverlong3 | kTooLarge;
  t[10] |= kSurrogate | kTooLarge;
  t[11] |= kSurrogate | kTooLarge;
  return t;
}();

// Which first bytes (0xC0 and above) have an NFC-unsafe character: a bit that stands in the entries of both halves.
struct UnsafeLeads {
  Nibbles low{}, high{};
  UnsafeLeads() {
    const Table& table = Table::get();
    for (unsigned h = 12; h < 16; ++h) high[h] = static_cast<uint8_t>(1u << (h - 12));
    for (uint32_t c = 0x80; c < 0x110000; ++c) {
      if (!(table[c] & kNfcUnsafe)) continue;
      const uint32_t lead = c < 0x800 ? 0xC0 | c >> 6 : c < 0x10000 ? 0xE0 | c >> 12 : 0xF0 | c >> 18;
      low[lead & 15] |= high[lead >> 4];
    }
  }
};

#define MXT_AVX2 __attribute__((target("avx2,bmi")))
MXT_AVX2 inline __m256i twice(const Nibbles& t) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.data())));
}

MXT_AVX2 TextScan scan_text_avx2(std::string_view s, bool nfc) {
  static const UnsafeLeads unsafe_leads;
  const Table& table = Table::get();
  TextScan out;
  const __m256i first_high = twice(kFirstHigh), first_low = twice(kFirstLow), second_high = twice(kSecondHigh);
  const __m256i lead_low = twice(unsafe_leads.low), lead_high = twice(unsafe_leads.high),
                low_half = _mm256_set1_epi8(15);
  __m256i previous = _mm256_setzero_si256(), error = _mm256_setzero_si256();
  // 32 bytes at p, which are those from `at` in the text; four more may be read.
  const auto block = [&](const char* p, size_t at) MXT_AVX2 {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if (_mm256_movemask_epi8(_mm256_or_si256(v, previous)) == 0) [[likely]] {
      previous = v;
      return;
    }
    const auto half = [&](__m256i x) MXT_AVX2 { return _mm256_and_si256(_mm256_srli_epi16(x, 4), low_half); };
    const __m256i across = _mm256_permute2x128_si256(previous, v, 0x21);
    const __m256i one = _mm256_alignr_epi8(v, across, 15), two = _mm256_alignr_epi8(v, across, 14),
                  three = _mm256_alignr_epi8(v, across, 13);
    const __m256i wrong =
        _mm256_and_si256(_mm256_and_si256(_mm256_shuffle_epi8(first_high, half(one)),
                                          _mm256_shuffle_epi8(first_low, _mm256_and_si256(one, low_half))),
                         _mm256_shuffle_epi8(second_high, half(v)));
    // A third or fourth byte must be the second of two continuation bytes, and no other may.
    const __m256i later =
        _mm256_or_si256(_mm256_subs_epu8(two, _mm256_set1_epi8(0x60)), _mm256_subs_epu8(three, _mm256_set1_epi8(0x70)));
    error = _mm256_or_si256(
        error, _mm256_xor_si256(wrong, _mm256_and_si256(later, _mm256_set1_epi8(static_cast<char>(0x80)))));
    previous = v;
    out.ascii = false;
    if (!nfc) return;
    const __m256i suspect = _mm256_and_si256(_mm256_shuffle_epi8(lead_low, _mm256_and_si256(v, low_half)),
                                             _mm256_shuffle_epi8(lead_high, half(v)));
    for (auto m = ~static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(suspect, _mm256_setzero_si256()))); m;
         m &= m - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(m));
      unsigned n;
      const uint32_t c = decode_wide(p + i, n);
      if (c < 0x110000 && (table[c] & kNfcUnsafe)) out.unsafe.push_back(at + i);
    }
  };
  constexpr size_t kCheck = 4096;  // invalid texts are left soon
  size_t i = 0;
  for (; s.size() - i >= 32 + 4; i += 32) {
    block(s.data() + i, i);
    if (i % kCheck == 0 && !_mm256_testz_si256(error, error)) break;
  }
  // The rest, and zeros behind it: a sequence that the end cuts is too short.
  char rest[3 * 32] = {};
  if (s.size() - i < 36) {
    std::copy_n(s.data() + i, s.size() - i, rest);
    for (size_t k = 0; k < 64; k += 32) block(rest + k, i + k);
  }
  out.valid = _mm256_testz_si256(error, error);
  return out;
}

const bool with_vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");

}  // namespace

TextScan scan_text(std::string_view s, bool nfc) {
  return with_vectors ? scan_text_avx2(s, nfc) : scan_text_plain(s, nfc);
}
#else
TextScan scan_text(std::string_view s, bool nfc) { return scan_text_plain(s, nfc); }
#endif

}  // namespace mxt::tokenizer::unicode
