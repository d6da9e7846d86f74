// The bulk scanner: see scanner.h. Bit i of word w of a mask stands for byte 64 w + i of the window; all bytes of a
// character carry its class. Masks have a zero word before and after, so shifts need no special case.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "tokenizer/split/scanner.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {
namespace {

using BitsKind = ScanRule::Kind;
using Word = uint64_t;
constexpr size_t kWords = kScanWindow / 64;
// Ends this close to the end of a window are left to the next one: no rule but those of white space looks further.
constexpr size_t kMargin = 16;

struct Mask {
  Word word[kWords + 2];
  Word& operator[](size_t w) { return word[w + 1]; }
  Word operator[](size_t w) const { return word[w + 1]; }
  Word before(size_t w) const { return word[w + 1] << 1 | word[w] >> 63; }     // bit i: byte i - 1
  Word after(size_t w) const { return word[w + 1] >> 1 | word[w + 2] << 63; }  // bit i: byte i + 1
  bool test(size_t i) const { return (word[(i >> 6) + 1] >> (i & 63)) & 1; }
  void set(size_t i) { word[(i >> 6) + 1] |= Word{1} << (i & 63); }
  void clear(size_t i) { word[(i >> 6) + 1] &= ~(Word{1} << (i & 63)); }
};

struct Window {
  const char* text;  // of the window's first byte
  size_t size;       // bytes in it; ends at a character's end
  size_t words;
  // letters, numbers, white space, anything valid; ' ', newlines, apostrophes, continuation bytes; ends found: bit i
  // says that a piece starts at byte i
  Mask letter, number, space, valid, blank, newline, quote, cont, start;

  Word other(size_t w) const { return valid[w] & ~(letter[w] | number[w] | space[w]); }
  Word other_before(size_t w) const {
    return valid.before(w) & ~(letter.before(w) | number.before(w) | space.before(w));
  }
  void zero() {
    for (Mask* m : {&letter, &number, &space, &valid, &blank, &newline, &quote, &cont, &start}) {
      m->word[0] = 0;
      std::memset(&m->word[1], 0, (words + 1) * sizeof(Word));
    }
  }
};

struct BitBlock {
  Word high, cont, letter, number, space, blank, newline, quote;
};

#ifdef __SSE2__
// Signed compares do: bytes ≥ 0x80 are negative and fall into no range.
inline BitBlock classify_ascii(const char* p) {
  BitBlock b{};
  const auto in = [](__m128i v, char lo, char hi) {
    return _mm_and_si128(_mm_cmpgt_epi8(v, _mm_set1_epi8(static_cast<char>(lo - 1))),
                         _mm_cmplt_epi8(v, _mm_set1_epi8(static_cast<char>(hi + 1))));
  };
  const auto bits = [](__m128i v) { return static_cast<Word>(static_cast<unsigned>(_mm_movemask_epi8(v))); };
  for (int k = 0; k < 4; ++k) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * k));
    const __m128i blank = _mm_cmpeq_epi8(v, _mm_set1_epi8(' '));
    const __m128i newline =
        _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\r')));
    const int s = 16 * k;
    b.high |= bits(v) << s;
    b.cont |= bits(_mm_cmplt_epi8(v, _mm_set1_epi8(static_cast<char>(0xC0)))) << s;
    b.letter |= bits(in(_mm_or_si128(v, _mm_set1_epi8(0x20)), 'a', 'z')) << s;
    b.number |= bits(in(v, '0', '9')) << s;
    b.space |= bits(_mm_or_si128(blank, in(v, 9, 13))) << s;
    b.blank |= bits(blank) << s;
    b.newline |= bits(newline) << s;
    b.quote |= bits(_mm_cmpeq_epi8(v, _mm_set1_epi8('\''))) << s;
  }
  return b;
}
#else
inline BitBlock classify_ascii(const char* p) {
  BitBlock b{};
  for (int i = 0; i < 64; ++i) {
    const unsigned char c = static_cast<unsigned char>(p[i]);
    const Word bit = Word{1} << i;
    if (c >= 0x80 && c < 0xC0) b.cont |= bit;
    if (c >= 0x80)
      b.high |= bit;
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
      b.letter |= bit;
    else if (c >= '0' && c <= '9')
      b.number |= bit;
    else if (c == ' ' || (c >= 9 && c <= 13))
      b.space |= bit;
    if (c == ' ') b.blank |= bit;
    if (c == '\n' || c == '\r') b.newline |= bit;
    if (c == '\'') b.quote |= bit;
  }
  return b;
}
#endif

// The patterns' classes in two bits a code point, 64 code points a block, equal blocks shared: small enough for the
// nearest cache.
template <uint16_t kNumberBit>
class SmallTable {
 public:
  enum Class : unsigned { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };
  static const SmallTable& get() {
    static const SmallTable table;
    return table;
  }
  unsigned operator[](uint32_t c) const {
    return blocks_[size_t{index_[c >> 6]} * 2 + (c >> 5 & 1)] >> (2 * (c & 31)) & 3;
  }

 private:
  SmallTable() {
    const auto& table = unicode::Table::get();
    std::map<std::array<Word, 2>, uint16_t> seen;
    for (uint32_t b = 0; b < index_.size(); ++b) {
      std::array<Word, 2> block{};
      for (uint32_t i = 0; i < 64; ++i) {
        const uint16_t f = table[b * 64 + i];
        const Word c = f & kNumberBit         ? kNumber
                       : f & unicode::kLetter ? kLetter
                       : f & unicode::kSpace  ? kSpace
                                              : kOther;
        block[i >> 5] |= c << (2 * (i & 31));
      }
      const auto [it, fresh] = seen.emplace(block, static_cast<uint16_t>(blocks_.size() / 2));
      if (fresh) blocks_.insert(blocks_.end(), block.begin(), block.end());
      index_[b] = it->second;
    }
  }
  std::array<uint16_t, 0x110000 / 64> index_;
  std::vector<Word> blocks_;
};

// The non-ASCII characters whose first byte lies in word w (`leads`; at p, three bytes more may be read); the last may
// reach into the next word.
template <uint16_t kNumberBit>
void classify_wide(Window& x, size_t w, const char* p, Word leads, const SmallTable<kNumberBit>& table) {
  Word of[4] = {}, all = 0;  // by class
  unsigned i = 0, n = 0, c = 0;
  for (; leads; leads &= leads - 1) {
    i = static_cast<unsigned>(std::countr_zero(leads));
    c = table[unicode::decode_wide(p + i, n)];
    all = (Word{1} << n) - 1;
    of[c] |= all << i;
  }
  Mask* const masks[4] = {nullptr, &x.letter, &x.number, &x.space};
  for (unsigned k = 1; k < 4; ++k) (*masks[k])[w] |= of[k];
  if (i + n > 64 && c != 0) (*masks[c])[w + 1] |= all >> (64 - i);
}

template <uint16_t kNumberBit>
void classify(Window& x) {
  const auto& table = SmallTable<kNumberBit>::get();
  x.words = (x.size + 63) / 64;
  x.zero();
  for (size_t w = 0; w < x.words; ++w) {
    const size_t here = std::min<size_t>(64, x.size - w * 64);
    const char* p = x.text + w * 64;
    char padded[64 + 8];
    if (w * 64 + sizeof padded > x.size) {  // what lies behind must not be read
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, p, std::min(sizeof padded, x.size - w * 64));
      p = padded;
    }
    BitBlock b = classify_ascii(p);
    const Word valid = here == 64 ? ~Word{0} : (Word{1} << here) - 1;
    x.valid[w] = valid;
    x.letter[w] |= b.letter;
    x.number[w] |= b.number;
    x.space[w] |= b.space;
    x.blank[w] = b.blank;
    x.newline[w] = b.newline;
    x.quote[w] = b.quote;
    x.cont[w] = b.cont;
    if (const Word leads = b.high & ~b.cont) classify_wide<kNumberBit>(x, w, p, leads, table);
  }
}

size_t back_to_first_byte(const Window& x, size_t i) {
  while (i > 0 && x.cont.test(i)) --i;
  return i;
}

// Bits of `last` mark the last byte of a character: the piece starts at its first byte.
void start_at_character(Window& x, size_t w, Word last) {
  x.start[w] |= last & ~x.cont[w];
  for (Word m = last & x.cont[w]; m; m &= m - 1)
    x.start.set(back_to_first_byte(x, w * 64 + static_cast<size_t>(std::countr_zero(m))));
}

// 's 't 're 've 'm 'll 'd where a piece starts at the apostrophe.
template <bool kFold>
void contractions(Window& x, size_t w, Word quotes) {
  for (; quotes; quotes &= quotes - 1) {
    const size_t i = w * 64 + static_cast<size_t>(std::countr_zero(quotes));
    const auto at = [&](size_t k) -> int {
      if (k >= x.size) return 0;
      const char c = x.text[k];
      return kFold && c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const int a = at(i + 1), b = at(i + 2);
    size_t n = 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
      n = 2;
    else if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
      n = 3;
    else if (kFold && a == '\xC5' && b == '\xBF')
      n = 3;  // ſ folds to s
    if (n == 0) continue;
    x.start.clear(i + 1);
    if (i + n < x.size) x.start.set(i + n);
  }
}

template <bool kDigitsApart>
void starts_gpt2(Window& x) {
  for (size_t w = 0; w < x.words; ++w) {
    const Word letter = x.letter[w], number = x.number[w], space = x.space[w], other = x.other(w);
    const Word free = ~x.blank.before(w);  // not joined to a ' '
    const Word first_other = other & ~x.other_before(w);
    Word s = space & ~x.space.before(w);
    s |= ((letter & ~x.letter.before(w)) | first_other) & free;
    s |= kDigitsApart ? number & ~x.cont[w] : number & ~x.number.before(w) & free;
    x.start[w] |= s;
    // The last white space before something else stands apart; a digit that is split off counts as the text's end.
    Word stop = x.valid.after(w) & ~x.space.after(w);
    if (kDigitsApart) stop &= ~x.number.after(w);
    start_at_character(x, w, space & stop);
  }
  // After all words: a contraction may clear a start in the next word.
  for (size_t w = 0; w < x.words; ++w) contractions<false>(x, w, x.quote[w] & ~x.other_before(w) & ~x.blank.before(w));
}

// Blanks between two newlines: `\s*[\r\n]+` takes them all, so no piece starts there, unless the newlines before were
// taken by the marks before them ([^\s\p{L}\p{N}]+[\r\n]*).
void join_blanks_before_newline(Window& x, size_t last_blank) {
  size_t a = last_blank;
  while (a > 0 && x.space.test(a - 1) && !x.newline.test(a - 1)) --a;
  if (a == 0 || !x.newline.test(a - 1)) return;
  size_t n = a - 1;
  while (n > 0 && x.newline.test(n - 1)) --n;
  const bool taken = n > 0 && !x.letter.test(n - 1) && !x.number.test(n - 1) && !x.space.test(n - 1);
  if (!taken) x.start.clear(a);
}

// Numbers in groups of up to `most` characters, from the start of each run.
void group_digits(Window& x, int most) {
  int k = 0;
  for (size_t i = 0; i < x.size; ++i) {
    if (!x.number.test(i)) {
      k = 0;
      const Word rest = x.number[i >> 6] >> (i & 63);
      i += rest ? static_cast<size_t>(std::countr_zero(rest)) - 1 : 63 - (i & 63);
      continue;
    }
    if (x.cont.test(i)) continue;
    if (k % most == 0)
      x.start.set(i);
    else
      x.start.clear(i);
    ++k;
  }
}

void starts_cl100k(Window& x, int max_digits) {
  Word long_number = 0, repairs = 0;
  for (size_t w = 0; w < x.words; ++w) {
    const Word letter = x.letter[w], space = x.space[w], newline = x.newline[w], other = x.other(w);
    const Word prev_other = x.other_before(w);
    const Word blank_like = space & ~newline;
    const Word first_other = other & ~prev_other & ~x.blank.before(w);
    Word s = space & ~x.space.before(w) & ~(prev_other & newline);
    s |= x.newline.before(w) & x.valid[w] & ~newline;
    s |= first_other;
    s |= letter & ~x.letter.before(w) & ~(x.space.before(w) & ~x.newline.before(w));
    s |= max_digits == 1 ? x.number[w] & ~x.cont[w] : x.number[w] & ~x.number.before(w);
    x.start[w] |= s;
    start_at_character(x, w, blank_like & x.valid.after(w) & ~x.space.after(w));
    repairs |= blank_like & x.newline.after(w);
    long_number |= x.number[w] & x.number.before(w);
  }
  // One mark that stands alone before letters joins them.
  for (size_t w = 0; w < x.words; ++w) {
    const Word first_other = x.other(w) & ~x.other_before(w) & ~x.blank.before(w);
    Word joins = first_other & ~x.cont[w] & x.letter.after(w);
    // A mark of several bytes: step over its continuation bytes.
    for (Word m = first_other & x.cont.after(w); m; m &= m - 1) {
      const size_t i = w * 64 + static_cast<size_t>(std::countr_zero(m));
      const size_t n = unicode::length_of(static_cast<unsigned char>(x.text[i]));
      if (i + n < x.size && x.letter.test(i + n)) x.start.clear(i + n);
    }
    x.start[w] &= ~(joins << 1);
    if (joins >> 63) x.start[w + 1] &= ~Word{1};
  }
  if (repairs)
    for (size_t w = 0; w < x.words; ++w)
      for (Word m = x.space[w] & ~x.newline[w] & x.newline.after(w); m; m &= m - 1)
        join_blanks_before_newline(x, w * 64 + static_cast<size_t>(std::countr_zero(m)));
  if (max_digits > 1 && long_number) group_digits(x, max_digits);
  for (size_t w = 0; w < x.words; ++w) contractions<true>(x, w, x.quote[w] & ~x.other_before(w) & ~x.blank.before(w));
}

// Writes the positions of the start bits in (0, limit].
size_t collect_bits(const Window& x, size_t limit, uint32_t* ends) {
  size_t count = 0;
  for (size_t w = 0; w * 64 <= limit && w < x.words; ++w) {
    Word m = x.start[w];
    if (w == 0) m &= ~Word{1};
    if (limit - w * 64 < 63) m &= (Word{2} << (limit - w * 64)) - 1;
    const uint32_t base = static_cast<uint32_t>(w * 64);
    const size_t n = static_cast<size_t>(std::popcount(m));
    // Eight at a time without looking: what is written too much is overwritten or lies in the slack.
    for (size_t k = 0; k < n; k += 8)
      for (size_t j = 0; j < 8; ++j) {
        ends[count + k + j] = base + static_cast<uint32_t>(std::countr_zero(m));
        m &= m - 1;
      }
    count += n;
  }
  return count;
}

// Start of the run of white space that touches the window's end: where it stops is not known yet.
size_t last_run_start(const Window& x) {
  size_t i = x.size;
  while (i > 0) {
    const size_t w = (i - 1) >> 6, bits = i - w * 64;
    const Word not_space = ~x.space[w] & (bits == 64 ? ~Word{0} : (Word{1} << bits) - 1);
    if (not_space) return w * 64 + 64 - static_cast<size_t>(std::countl_zero(not_space));
    i = w * 64;
  }
  return 0;
}

}  // namespace

size_t scan_pieces(const ScanRule& rule, const char* text, size_t begin, size_t end, uint32_t* ends) {
  static thread_local Window x;
  x.text = text + begin;
  x.size = std::min(kScanWindow, end - begin);
  const bool whole = x.size == end - begin;
  if (!whole)
    while ((static_cast<unsigned char>(x.text[x.size]) & 0xC0) == 0x80) --x.size;
  switch (rule.kind) {
    case BitsKind::kGpt2:
      classify<unicode::kNumber>(x);
      starts_gpt2<false>(x);
      break;
    case BitsKind::kDigitsGpt2:
      classify<unicode::kNumeric>(x);
      starts_gpt2<true>(x);
      break;
    case BitsKind::kCl100k:
      classify<unicode::kNumber>(x);
      starts_cl100k(x, rule.max_digits);
      break;
  }
  if (whole) {
    const size_t n = collect_bits(x, x.size - 1, ends);
    ends[n] = static_cast<uint32_t>(x.size);
    return n + 1;
  }
  const size_t n = collect_bits(x, std::min(x.size - kMargin, last_run_start(x)), ends);
  if (n > 0) return n;
  const size_t e = next_piece(rule, text, begin, end);
  // A piece of 4 GiB or more does not fit an offset: it is cut, and the encoder refuses texts that long before.
  ends[0] = static_cast<uint32_t>(std::min<size_t>(e - begin, UINT32_MAX));
  return 1;
}

}  // namespace mxt::tokenizer
