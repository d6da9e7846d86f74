#include "pytext/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/text.h"

namespace mxt::pytext {
namespace {

// Cases that utf8proc's one-to-one mappings cannot say.
struct ManyCase {
  char32_t from;
  char32_t upper[3], title[3];
};
constexpr ManyCase kManyCase[] = {
#include "pytext/case_map.inc"
};

const ManyCase* many_case(char32_t c) {
  if (c < 0x80) return nullptr;
  const auto* it = std::lower_bound(std::begin(kManyCase), std::end(kManyCase), c,
                                    [](const ManyCase& m, char32_t x) { return m.from < x; });
  return it != std::end(kManyCase) && it->from == c ? it : nullptr;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_case_ignorable(char32_t c) {
  switch (c) {
    case '\'':
    case '.':
    case ':':
    case '^':
    case '`':
    case 0xb7:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
      return true;
    default:
      break;
  }
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

void append_points(std::string& out, const char32_t (&points)[3]) {
  for (char32_t p : points)
    if (p) append_utf8(out, p);
}

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  if (is_decimal(c)) return true;
  // Numeric_Type=Digit: superscripts, subscripts and the circled digits.
  return c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0x1369 && c <= 0x1371) || c == 0x19da || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247c) || (c >= 0x2488 && c <= 0x2490) || c == 0x24ea || (c >= 0x24f5 && c <= 0x24fd) ||
         c == 0x24ff || (c >= 0x2776 && c <= 0x277e) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278a && c <= 0x2792) ||
         (c >= 0x10a40 && c <= 0x10a43) || (c >= 0x10e60 && c <= 0x10e68) || (c >= 0x11052 && c <= 0x1105a) ||
         (c >= 0x1f100 && c <= 0x1f10a);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c));
}
bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) && !is_title(c);
}
bool is_title(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_name_start(char32_t c) { return c == '_' || is_alpha(c) || (c >= 0x80 && category(c) == UTF8PROC_CATEGORY_NL); }
bool is_name_part(char32_t c) {
  if (is_name_start(c) || is_decimal(c)) return true;
  if (c < 0x80) return false;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC;
}

void append_upper(std::string& out, char32_t c) {
  if (const ManyCase* m = many_case(c)) return append_points(out, m->upper);
  append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) return append_points(out, {'i', 0x307, 0});
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}
void append_title(std::string& out, char32_t c) {
  if (const ManyCase* m = many_case(c)) return append_points(out, m->title);
  append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}
void append_casefold(std::string& out, char32_t c) {
  utf8proc_int32_t points[8];
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), points, 8, UTF8PROC_CASEFOLD, &boundary);
  if (n <= 0) return append_utf8(out, c);
  for (int i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(points[i]));
}

bool is_final_sigma(std::string_view s, size_t at) {
  size_t size = 0, i = at;
  bool before = false;
  while (i > 0) {
    const char32_t c = code_point_before(s, i, size);
    i -= size;
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  code_point(s, at, size);
  for (i = at + size; i < s.size(); i += size) {
    const char32_t c = code_point(s, i, size);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

char32_t code_point(std::string_view s, size_t i, size_t& size) {
  const auto b = [&](size_t k) { return static_cast<unsigned char>(s[i + k]); };
  const unsigned char first = b(0);
  if (first < 0x80) return size = 1, first;
  size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  if (size == 1 || i + size > s.size()) return size = 1, first;
  char32_t c = first & (0x7f >> size);
  for (size_t k = 1; k < size; ++k) c = (c << 6) | (b(k) & 0x3f);
  return c;
}

char32_t code_point_before(std::string_view s, size_t i, size_t& size) {
  size_t begin = i - 1;
  while (begin > 0 && i - begin < 4 && (static_cast<unsigned char>(s[begin]) & 0xc0) == 0x80) --begin;
  const char32_t c = code_point(s, begin, size);
  if (begin + size == i) return c;
  size = 1;
  return static_cast<unsigned char>(s[i - 1]);
}

bool is_ascii(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t length(std::string_view s) {
  size_t n = 0;
  for (char c : s) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

size_t byte_offset(std::string_view s, size_t n) {
  for (size_t i = 0; i < s.size(); ++i)
    if ((static_cast<unsigned char>(s[i]) & 0xc0) != 0x80 && n-- == 0) return i;
  return s.size();
}

size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  if (what.size() == 1) return text.find(what[0], from);
  // glibc's memmem is the two-way algorithm.
  const void* at = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

size_t rfind_text(std::string_view text, std::string_view what) {
  if (what.size() <= 16) return text.rfind(what);
  const std::string back_text(text.rbegin(), text.rend()), back_what(what.rbegin(), what.rend());
  const size_t at = find_text(back_text, back_what, 0);
  return at == std::string_view::npos ? at : text.size() - at - what.size();
}

size_t skip_space(std::string_view s, size_t i) {
  size_t size = 0;
  while (i < s.size() && is_space(code_point(s, i, size))) i += size;
  return i;
}

size_t rskip_space(std::string_view s, size_t end) {
  size_t size = 0;
  while (end > 0 && is_space(code_point_before(s, end, size))) end -= size;
  return end;
}

}  // namespace mxt::pytext
