#include "tokenizer/text/unicode.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace mxt::tokenizer::unicode {

Table::Table() {
  std::map<std::vector<uint16_t>, uint16_t> seen;
  std::vector<const std::vector<uint16_t>*> kept;
  std::vector<uint16_t> block(256);
  size_t run = 0;
  for (uint32_t b = 0; b < 0x1100; ++b) {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t c = b * 256 + i;
      while (run + 1 < std::size(kRuns) && kRuns[run + 1].first <= c) ++run;
      block[i] = kRuns[run].classes;
    }
    const auto [it, fresh] = seen.emplace(block, static_cast<uint16_t>(kept.size()));
    if (fresh) kept.push_back(&it->first);
    index_[b] = it->second;
  }
  blocks_ = std::make_unique<uint16_t[]>(kept.size() * 256);
  for (size_t k = 0; k < kept.size(); ++k) std::copy(kept[k]->begin(), kept[k]->end(), blocks_.get() + k * 256);
}

const Table& Table::get() {
  static const Table table;
  return table;
}

uint32_t to_lower(uint32_t c) {
  const Lower* it = std::upper_bound(std::begin(kLower), std::end(kLower), c,
                                     [](uint32_t v, const Lower& l) { return v < l.first; });
  if (it == std::begin(kLower)) return c;
  --it;
  if (c > it->last || (c - it->first) % it->stride != 0) return c;
  return static_cast<uint32_t>(static_cast<int32_t>(c) + it->delta);
}

Survey survey(std::string_view s) {
  const Table& table = Table::get();
  Survey out;
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
      if (table[c] & kNfcUnsafe) [[unlikely]]
        out.unsafe.push_back(static_cast<size_t>(p - s.data()));
      p += n;
    }
  }
  return out;
}

}  // namespace mxt::tokenizer::unicode
