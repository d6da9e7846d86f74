#include "tokenizer/text/repair.h"

#include <algorithm>

namespace mxt::tokenizer {
namespace {

// Length of the valid sequence at s[i], or minus that of the maximal invalid part (Unicode, table 3-7).
int sequence(std::string_view s, size_t i) {
  const auto at = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  const unsigned lead = at(i);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int k = 1; k < n; ++k) {
    const unsigned b = at(i + static_cast<size_t>(k));
    if (b < low || b > high) return -k;
    low = 0x80;
    high = 0xBF;
  }
  return n;
}

}  // namespace

std::string repair_utf8(std::string_view text, OffsetMap& map) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    const int n = sequence(text, i);
    if (n > 0) {
      out.append(text.substr(i, static_cast<size_t>(n)));
      i += static_cast<size_t>(n);
      continue;
    }
    const size_t bad = static_cast<size_t>(-n);
    map.add({out.size(), out.size() + 3, i, i + bad});
    out += "\xEF\xBF\xBD";
    i += bad;
  }
  return out;
}

std::vector<Span> carry_spans(std::span<const Span> spans, const OffsetMap& map) {
  std::vector<Span> out;
  for (const Span& s : spans) {
    const Span t{map.from_source(s.begin, false), map.from_source(s.end, true)};
    if (t.begin < t.end) out.push_back(t);
  }
  return out;
}

}  // namespace mxt::tokenizer
