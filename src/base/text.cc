#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace mxt {
namespace {

// Length of the valid sequence at s[i], or minus the length of the maximal invalid part (Unicode 15, table 3-7; the
// practice that CPython follows).
int sequence(std::string_view s, size_t i) {
  const auto at = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  const unsigned b0 = at(i);
  if (b0 < 0x80) return 1;
  unsigned lo = 0x80, hi = 0xBF;
  int n = 0;
  if (b0 >= 0xC2 && b0 <= 0xDF)
    n = 2;
  else if (b0 >= 0xE0 && b0 <= 0xEF) {
    n = 3;
    if (b0 == 0xE0) lo = 0xA0;
    if (b0 == 0xED) hi = 0x9F;
  } else if (b0 >= 0xF0 && b0 <= 0xF4) {
    n = 4;
    if (b0 == 0xF0) lo = 0x90;
    if (b0 == 0xF4) hi = 0x8F;
  } else {
    return -1;
  }
  for (int k = 1; k < n; ++k) {
    const unsigned b = at(i + static_cast<size_t>(k));
    if (i + static_cast<size_t>(k) >= s.size() || b < lo || b > hi) return -k;
    lo = 0x80;
    hi = 0xBF;
  }
  return n;
}

}  // namespace

bool is_valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const int n = sequence(s, i);
    if (n < 0) return false;
    i += static_cast<size_t>(n);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const int n = sequence(s, i);
    if (n > 0) {
      out.append(s.substr(i, static_cast<size_t>(n)));
      i += static_cast<size_t>(n);
    } else {
      out += "\xEF\xBF\xBD";
      i += static_cast<size_t>(-n);
    }
  }
  return out;
}

namespace {

// U+2028 to U+202E and U+2066 to U+2069: ends of lines, and what writes a text backwards.
bool turns_the_line(std::string_view c) {
  const auto last = static_cast<unsigned char>(c[2]);
  return (c.starts_with("\xE2\x80") && last >= 0xA8 && last <= 0xAE) ||
         (c.starts_with("\xE2\x81") && last >= 0xA6 && last <= 0xA9);
}

}  // namespace

std::string printable(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  const auto hex = [&](unsigned char c) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
  };
  for (size_t i = 0; i < s.size();) {
    const int n = sequence(s, i);
    const auto c = static_cast<unsigned char>(s[i]);
    const bool c1 = n == 2 && c == 0xC2 && static_cast<unsigned char>(s[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (n > 0 && c >= 0x20 && c != 0x7F && !c1 && !(n == 3 && turns_the_line(s.substr(i, 3)))) {
      out.append(s.substr(i, static_cast<size_t>(n)));
      i += static_cast<size_t>(n);
    } else {
      for (int k = n > 0 ? n : -n; k > 0; --k) hex(static_cast<unsigned char>(s[i++]));
    }
  }
  return out;
}

uint32_t next_code_point(std::string_view s, size_t& i) {
  const auto b = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(s[k])); };
  const uint32_t c = b(i);
  if (c < 0x80) {
    i += 1;
    return c;
  }
  if (c < 0xE0 && i + 1 < s.size()) {
    i += 2;
    return ((c & 0x1F) << 6) | (b(i - 1) & 0x3F);
  }
  if (c < 0xF0 && i + 2 < s.size()) {
    i += 3;
    return ((c & 0x0F) << 12) | ((b(i - 2) & 0x3F) << 6) | (b(i - 1) & 0x3F);
  }
  if (i + 3 < s.size()) {
    i += 4;
    return ((c & 0x07) << 18) | ((b(i - 3) & 0x3F) << 12) | ((b(i - 2) & 0x3F) << 6) | (b(i - 1) & 0x3F);
  }
  i = s.size();
  return 0xFFFD;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  // Letters are the same in either case.
  const auto low = [](std::string_view s) {
    std::string out(s);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    return out;
  };
  const std::string word = low(typed);
  if (word.size() > 200) return "";  // no slip of the hand; the work grows with its length
  size_t best = word.size() / 3 + 2;
  std::string out;
  for (const auto& candidate : candidates) {
    const std::string c = low(candidate);
    std::vector<size_t> row(c.size() + 1);
    for (size_t j = 0; j <= c.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= c.size(); ++j) {
        const size_t keep = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (word[i - 1] == c[j - 1] ? 0 : 1)});
        diagonal = keep;
      }
    }
    if (row[c.size()] < best) {
      best = row[c.size()];
      out = candidate;
    }
  }
  return out;
}

std::vector<std::string_view> split(std::string_view s, char sep) {
  std::vector<std::string_view> out;
  size_t from = 0;
  for (size_t i = 0; i <= s.size(); ++i)
    if (i == s.size() || s[i] == sep) {
      out.push_back(s.substr(from, i - from));
      from = i + 1;
    }
  return out;
}

std::string_view trim(std::string_view s) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; };
  while (!s.empty() && space(s.front())) s.remove_prefix(1);
  while (!s.empty() && space(s.back())) s.remove_suffix(1);
  return s;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  int u = 0;
  while (v >= 1024 && u < 4) {
    v /= 1024;
    ++u;
  }
  return u == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", v, kUnit[u]);
}

}  // namespace mxt
