// Classes of code points as Hugging Face tokenizers see them (unicode_table.inc is made from that oracle), and UTF-8.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace mxt::tokenizer::unicode {

struct Run {
  uint32_t first;
  uint16_t classes;
};
struct Lower {
  uint32_t first, last;
  uint16_t stride;
  int32_t delta;
};
#include "tokenizer/text/unicode_table.inc"

// Two-stage table, built once: 256 code points a block, equal blocks shared.
class Table {
 public:
  static const Table& get();
  uint16_t operator[](uint32_t c) const { return blocks_[(size_t{index_[c >> 8]} << 8) | (c & 0xFF)]; }

 private:
  Table();
  uint16_t index_[0x1100];
  std::unique_ptr<uint16_t[]> blocks_;
};

// Rust's char::to_lowercase for one code point, but U+0130, which becomes two (the caller's business).
uint32_t to_lower(uint32_t c);

// Length of the sequence that starts with `lead` (valid UTF-8).
inline size_t length_of(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

// Decodes at p (valid UTF-8) and says how long the sequence is.
inline uint32_t decode(const char* p, size_t& n) {
  const auto b = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t c = b(0);
  if (c < 0x80) return n = 1, c;
  if (c < 0xE0) return n = 2, ((c & 0x1F) << 6) | (b(1) & 0x3F);
  if (c < 0xF0) return n = 3, ((c & 0x0F) << 12) | ((b(1) & 0x3F) << 6) | (b(2) & 0x3F);
  return n = 4, ((c & 0x07) << 18) | ((b(1) & 0x3F) << 12) | ((b(2) & 0x3F) << 6) | (b(3) & 0x3F);
}

// The same for a character of two to four bytes, without branches: they would be guessed wrong where scripts mix. Reads
// four bytes.
inline uint32_t decode_wide(const char* p, unsigned& n) {
  const auto b = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = b(0), bits = (lead & 0x3F) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
  const unsigned more = (lead >= 0xE0) + (lead >= 0xF0);
  n = 2 + more;
  return bits >> (12 - 6 * more) & ((uint32_t{1} << (11 + 5 * more)) - 1);
}

// How many ASCII bytes stand at p.
inline size_t ascii_run(const char* p, size_t size) {
  size_t i = 0;
  for (; i + 32 <= size; i += 32) {
    uint64_t w[4];
    std::memcpy(w, p + i, 32);
    if ((w[0] | w[1] | w[2] | w[3]) & 0x8080808080808080ull) break;
  }
  while (i < size && static_cast<signed char>(p[i]) >= 0) ++i;
  return i;
}

// The last character that ends before `end` (> 0): its first byte.
inline size_t back(std::string_view s, size_t end) {
  --end;
  while (end > 0 && (static_cast<unsigned char>(s[end]) & 0xC0) == 0x80) --end;
  return end;
}

struct TextScan {
  bool valid = true;  // UTF-8; the rest only means something where it is
  bool ascii = true;
  std::vector<size_t> unsafe;  // where characters begin that NFC may change, or join to what stands before them
};
// One pass over the text; stops early at invalid bytes. Unsafe characters are looked for where `nfc` is true.
TextScan scan_text(std::string_view s, bool nfc);
// The same in plain loops: where there are no vector instructions, and the tests' oracle.
TextScan scan_text_plain(std::string_view s, bool nfc);

}  // namespace mxt::tokenizer::unicode
