#include "tokenizer/io/byte_level.h"

#include "base/text.h"
#include "tokenizer/text/unicode.h"

namespace mxt::tokenizer {

const std::array<uint32_t, 256>& byte_alphabet() {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      t[b] = printable ? b : next++;
    }
    return t;
  }();
  return table;
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, byte_alphabet()[static_cast<unsigned char>(c)]);
  return out;
}

bool unspell_bytes(std::string_view spelled, std::string& bytes) {
  static const auto back = [] {
    std::array<int16_t, 512> t;
    t.fill(-1);
    for (int b = 0; b < 256; ++b) t[byte_alphabet()[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
    return t;
  }();
  bytes.clear();
  for (size_t i = 0; i < spelled.size();) {
    size_t n;
    const uint32_t c = unicode::decode(spelled.data() + i, n);
    if (c >= back.size() || back[c] < 0) return false;
    bytes += static_cast<char>(back[c]);
    i += n;
  }
  return true;
}

}  // namespace mxt::tokenizer
