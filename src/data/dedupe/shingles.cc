#include "data/dedupe/shingles.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "data/shape/ascii.h"
#include "tokenizer/text/normalize.h"
#include "tokenizer/text/unicode.h"

namespace mxt::data {
namespace {

namespace unicode = tokenizer::unicode;
static_assert(std::endian::native == std::endian::little, "hashes read words as they stand");

// The finaliser of MurmurHash3 (Appleby): every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}

constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;  // odd: the hash of a run is a polynomial in it, modulo 2^64

// Eight bytes may be read from the word's last part on (kPadding).
constexpr size_t kPadding = 8;
uint64_t hash_word(const char* p, size_t n) {
  uint64_t h = n * kFactor, w;
  for (; n > 8; n -= 8, p += 8) {
    std::memcpy(&w, p, 8);
    h = mix(h ^ w) * kFactor;
  }
  std::memcpy(&w, p, 8);
  return mix(h ^ (w & (~uint64_t{0} >> (64 - 8 * n))));  // 1 ≤ n ≤ 8
}

enum : uint8_t { kBreak = 0, kInWord = 1, kWide = 2 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> c{};
  for (size_t i = '0'; i <= '9'; ++i) c[i] = kInWord;
  for (size_t i = 'a'; i <= 'z'; ++i) c[i] = c[i - 32] = kInWord;
  for (size_t i = 0x80; i < 0x100; ++i) c[i] = kWide;
  return c;
}
constexpr std::array<uint8_t, 256> kClass = make_classes();

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Letters made small; kPadding bytes more at the end.
void lower(std::string_view in, std::string* out) {
  out->clear();
  for (size_t i = 0, n = 0; i < in.size(); i += n) {
    const uint32_t c = unicode::decode(in.data() + i, n), l = unicode::to_lower(c);
    l == c ? void(out->append(in.substr(i, n))) : append_utf8(*out, l);
  }
  out->append(kPadding, '\0');
}

}  // namespace

void normalise_text(std::string_view in, std::string* out) {
  if (is_plain_line(in.data(), in.size())) {
    out->assign(in);
    return;
  }
  std::string storage;
  const bool ascii = unicode::ascii_run(in.data(), in.size()) == in.size();
  if (!ascii) {
    static const tokenizer::Normalizer nfc(std::vector<tokenizer::NormalizerStep>{
        {.kind = tokenizer::NormalizerStep::Kind::kNfc, .pattern = {}, .content = {}, .regex = {}}});
    in = nfc.apply(in, storage, nullptr);
  }
  out->resize(in.size());
  char* to = out->data();
  bool space = true;  // none at the beginning
  for (size_t i = 0, n = 1; i < in.size(); i += n) {
    const char c = in[i];
    n = 1;
    bool white = is_white(c);
    if (!ascii && static_cast<signed char>(c) < 0)
      white = (unicode::Table::get()[unicode::decode(in.data() + i, n)] & unicode::kWhite) != 0;
    if (white) {
      if (!space) *to++ = ' ';
      space = true;
      continue;
    }
    space = false;
    for (size_t k = 0; k < n; ++k) *to++ = in[i + k];
  }
  out->resize(static_cast<size_t>(to - out->data()));
  if (space && !out->empty()) out->pop_back();
}

Shingler::Shingler(config::ShingleUnit unit, int ngram) : unit_(unit), n_(static_cast<size_t>(ngram)), leaving_(1) {
  MXT_ASSERT(ngram >= 1);
  for (size_t i = 0; i < n_; ++i) leaving_ *= kFactor;
}

// lower_ and bits_ are those of the text.
void Shingler::ascii_words(std::string_view text) {
  uint64_t before = 0;  // 1 where the last byte of the block before is inside a word
  size_t begin = 0;
  for (size_t k = 0; k * 64 < text.size(); ++k) {
    const uint64_t in = bits_[k];
    for (uint64_t turns = in ^ ((in << 1) | before); turns != 0; turns &= turns - 1) {
      const size_t i = k * 64 + static_cast<size_t>(std::countr_zero(turns));
      if ((in >> (i % 64)) & 1)
        begin = i;
      else
        units_.push_back(hash_word(lower_.data() + begin, i - begin));
    }
    before = in >> 63;
  }
  if (before && text.size() % 64 == 0) units_.push_back(hash_word(lower_.data() + begin, text.size() - begin));
}

void Shingler::words(std::string_view text) {
  const unicode::Table& table = unicode::Table::get();
  const char* const s = text.data();
  size_t begin = 0, i = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) units_.push_back(hash_word(s + begin, end - begin));
  };
  while (i < text.size()) {
    const uint8_t c = kClass[static_cast<unsigned char>(s[i])];
    if (c == kInWord) {
      ++i;
      continue;
    }
    size_t n = 1;
    if (c == kWide) {
      const uint16_t f = table[unicode::decode(s + i, n)];
      if ((f & (unicode::kLetter | unicode::kNumber | unicode::kMark)) && !(f & unicode::kChinese)) {
        i += n;
        continue;
      }
      end_word(i);
      if (f & unicode::kChinese) units_.push_back(hash_word(s + i, n));
    } else {
      end_word(i);
    }
    i += n;
    begin = i;
  }
  end_word(text.size());
}

void Shingler::characters(std::string_view text) {
  for (size_t i = 0, n = 0; i < text.size(); i += n)
    units_.push_back(mix(kFactor ^ unicode::decode(text.data() + i, n)));
}

template <typename T>
void Shingler::append_runs(std::string_view normalised, std::vector<T>* out) {
  constexpr int kShift = 64 - 8 * static_cast<int>(sizeof(T));
  units_.clear();
  if (unit_ == config::ShingleUnit::kWords &&
      unicode::ascii_run(normalised.data(), normalised.size()) == normalised.size()) {
    bits_.resize(normalised.size() / 64 + 1);
    lower_.resize(bits_.size() * 64 + kPadding);
    lower_and_mark_words(normalised.data(), normalised.size(), lower_.data(), bits_.data());
    ascii_words(normalised);
  } else {
    lower(normalised, &lower_);
    const std::string_view text(lower_.data(), lower_.size() - kPadding);
    unit_ == config::ShingleUnit::kWords ? words(text) : characters(text);
  }
  if (units_.empty()) return;
  uint64_t h = 0;
  const size_t first = std::min(n_, units_.size());
  for (size_t i = 0; i < first; ++i) h = h * kFactor + units_[i];
  out->push_back(static_cast<T>(mix(h) >> kShift));
  for (size_t i = first; i < units_.size(); ++i) {
    h = h * kFactor + units_[i] - leaving_ * units_[i - n_];
    out->push_back(static_cast<T>(mix(h) >> kShift));
  }
}

void Shingler::append(std::string_view normalised, std::vector<uint32_t>* out) { append_runs(normalised, out); }
void Shingler::append(std::string_view normalised, std::vector<uint64_t>* out) { append_runs(normalised, out); }

}  // namespace mxt::data
