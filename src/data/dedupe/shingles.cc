#include "data/dedupe/shingles.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
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

uint64_t hash_word(const char* p, size_t n) {
  uint64_t h = n * kFactor, w = 0;
  for (; n > 8; n -= 8, p += 8) {
    std::memcpy(&w, p, 8);
    h = mix(h ^ w) * kFactor;
  }
  w = 0;
  std::memcpy(&w, p, n);
  return mix(h ^ w);
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

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void lower(std::string_view in, std::string* out) {
  out->resize(in.size());
  char* to = out->data();
  for (size_t i = 0; i < in.size(); ++i) {
    const char c = in[i];
    to[i] = static_cast<char>(c + (c >= 'A' && c <= 'Z' ? 32 : 0));
  }
  if (unicode::ascii_run(in.data(), in.size()) == in.size()) return;
  out->clear();
  for (size_t i = 0, n = 0; i < in.size(); i += n) {
    const uint32_t c = unicode::decode(in.data() + i, n);
    const uint32_t l = unicode::to_lower(c);
    if (l == c) out->append(in.substr(i, n));
    else if (l < 0x80) out->push_back(static_cast<char>(l));
    else {
      char b[4];
      size_t k = 0;
      if (l < 0x800) b[k++] = static_cast<char>(0xC0 | (l >> 6));
      else if (l < 0x10000) b[k++] = static_cast<char>(0xE0 | (l >> 12)), b[k++] = static_cast<char>(0x80 | ((l >> 6) & 63));
      else b[k++] = static_cast<char>(0xF0 | (l >> 18)), b[k++] = static_cast<char>(0x80 | ((l >> 12) & 63)), b[k++] = static_cast<char>(0x80 | ((l >> 6) & 63));
      b[k++] = static_cast<char>(0x80 | (l & 63));
      out->append(b, k);
    }
  }
}

}  // namespace

void normalise_text(std::string_view in, std::string* out) {
  std::string storage;
  const bool ascii = unicode::ascii_run(in.data(), in.size()) == in.size();
  if (!ascii) {
    static const tokenizer::Normalizer nfc(std::vector<tokenizer::NormalizerStep>{{.kind = tokenizer::NormalizerStep::Kind::kNfc, .pattern = {}, .content = {}, .regex = {}}});
    in = nfc.apply(in, storage, nullptr);
  }
  out->resize(in.size());
  char* to = out->data();
  bool space = true;  // none at the beginning
  for (size_t i = 0, n = 1; i < in.size(); i += n) {
    const char c = in[i];
    n = 1;
    bool white = is_space(c);
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
  for (size_t i = 0, n = 0; i < text.size(); i += n) units_.push_back(mix(kFactor ^ unicode::decode(text.data() + i, n)));
}

void Shingler::append(std::string_view normalised, std::vector<uint32_t>* out) {
  lower(normalised, &lower_);
  units_.clear();
  unit_ == config::ShingleUnit::kWords ? words(lower_) : characters(lower_);
  if (units_.empty()) return;
  uint64_t h = 0;
  const size_t first = std::min(n_, units_.size());
  for (size_t i = 0; i < first; ++i) h = h * kFactor + units_[i];
  out->push_back(static_cast<uint32_t>(mix(h) >> 32));
  for (size_t i = first; i < units_.size(); ++i) {
    h = h * kFactor + units_[i] - leaving_ * units_[i - n_];
    out->push_back(static_cast<uint32_t>(mix(h) >> 32));
  }
}

}  // namespace mxt::data
