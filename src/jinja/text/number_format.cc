#include "jinja/text/number_format.h"

#include <cmath>
#include <cstdio>

#include "jinja/text/repr.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

constexpr int64_t kWidestNumber = 100000;
constexpr int64_t kMostDigits = 1000;  // after the point; a double has no more than 1074

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

std::string in_base(Int i, unsigned base, bool upper) {
  auto u = static_cast<unsigned __int128>(i);
  if (i < 0) u = -u;
  std::string s;
  do {
    const auto d = static_cast<unsigned>(u % base);
    s.insert(s.begin(), static_cast<char>(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10));
    u /= base;
  } while (u != 0);
  return s;
}

std::string printf_real(double d, char type, int precision, bool alternate) {
  std::string pattern = alternate ? "%#.*" : "%.*";
  pattern += type;
  std::string buffer(static_cast<size_t>(precision) + 350, '\0');
  const int n = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), precision, d);
  buffer.resize(static_cast<size_t>(n));
  return buffer;
}

// Digits without sign; `d` is not negative.
std::string real_digits(Machine& m, double d, const NumberStyle& style) {
  const bool upper = style.type == 'E' || style.type == 'F' || style.type == 'G';
  if (std::isnan(d)) return upper ? "NAN" : "nan";
  if (std::isinf(d)) return upper ? "INF" : "inf";
  if (style.precision > kMostDigits) m.fail_limit("formats a number with more than 1000 digits");
  const int precision = static_cast<int>(style.precision);
  switch (style.type) {
    case 0: {
      if (precision < 0) return float_text(d);
      std::string s = printf_real(d, 'g', precision == 0 ? 1 : precision, style.alternate);
      if (s.find_first_of(".e") == std::string::npos) s += ".0";
      return s;
    }
    case 'n':
      return printf_real(d, 'g', precision < 0 ? 6 : precision, style.alternate);
    case '%':
      return printf_real(d * 100, 'f', precision < 0 ? 6 : precision, style.alternate) + "%";
    default:
      return printf_real(d, style.type, precision < 0 ? 6 : precision, style.alternate);
  }
}

void group(std::string& digits, char separator, int every) {
  size_t end = 0;
  while (end < digits.size() && std::isalnum(static_cast<unsigned char>(digits[end])) && digits[end] != 'e') ++end;
  for (auto i = static_cast<int64_t>(end) - every; i > 0; i -= every)
    digits.insert(static_cast<size_t>(i), 1, separator);
}

}  // namespace

FormatSpec parse_spec(Machine& m, const std::string& text) {
  FormatSpec spec;
  size_t i = 0, size = 0;
  if (!text.empty()) pytext::code_point(text, 0, size);
  if (size < text.size() && is_align(text[size])) {
    spec.fill = text.substr(0, size);
    spec.align = text[size];
    i = size + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    i = 1;
  }
  const auto peek = [&] { return i < text.size() ? text[i] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.number.sign = text[i++];
  if (peek() == '#') spec.number.alternate = ++i > 0;
  if (peek() == '0') {
    ++i;
    if (!spec.align) {
      spec.align = '=';
      spec.fill.assign(1, '0');
    }
  }
  const auto digits = [&](int64_t& n) {
    for (n = 0; peek() >= '0' && peek() <= '9'; ++i) {
      n = n * 10 + (text[i] - '0');
      if (n > kWidestNumber) m.fail_limit("formats a field of more than 100000 characters");
    }
  };
  digits(spec.width);
  if (peek() == ',' || peek() == '_') spec.number.grouping = text[i++];
  if (peek() == '.') {
    ++i;
    if (peek() < '0' || peek() > '9') m.fail("Format specifier missing precision");
    digits(spec.number.precision);
  }
  if (i < text.size()) spec.number.type = text[i++];
  if (i < text.size()) m.fail("Invalid format specifier '{}'", text);
  return spec;
}

std::string number_text(Machine& m, const Value& v, const NumberStyle& style) {
  const bool as_int_type = style.type != 0 && std::string_view("dboxXc").find(style.type) != std::string_view::npos;
  const bool as_real_type = style.type != 0 && std::string_view("eEfFgG%").find(style.type) != std::string_view::npos;
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is_number())
    m.fail("a number is required to format with '{}', not {}", style.type ? style.type : 'd', type_name(v));
  if (style.type && !as_int_type && !as_real_type && style.type != 'n')
    m.fail("Unknown format code '{}' for object of type '{}'", style.type, type_name(v));
  std::string digits, prefix;
  bool negative = false;
  int every = 3;
  if (as_real_type || (v.is(Kind::kFloat) && !as_int_type)) {
    const double d = v.as_real();
    negative = std::signbit(d) && !std::isnan(d);
    digits = real_digits(m, std::fabs(d), style);
  } else {
    if (v.is(Kind::kFloat) && style.type != 'd') m.fail("an integer is required to format with '{}'", style.type);
    if (v.is(Kind::kFloat) && (!std::isfinite(v.as_real()) || std::fabs(v.as_real()) > 1e38))
      m.fail("cannot convert the float {} to an integer", float_text(v.as_real()));
    const Int i = v.is(Kind::kFloat) ? static_cast<Int>(v.as_real()) : v.as_int();
    negative = i < 0;
    const unsigned base = style.type == 'x' || style.type == 'X' ? 16
                          : style.type == 'o'                    ? 8
                          : style.type == 'b'                    ? 2
                                                                 : 10;
    digits = in_base(i, base, style.type == 'X');
    if (base != 10) every = 4;
    if (static_cast<int64_t>(digits.size()) < style.precision)
      digits.insert(0, static_cast<size_t>(style.precision) - digits.size(), '0');
    if (style.alternate && base != 10) prefix = std::string("0") + style.type;
  }
  if (style.grouping && style.zero) m.fail("zeros before grouped digits are not supported");
  if (style.grouping) group(digits, style.grouping, every);
  std::string head = negative ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
  head += prefix;
  const auto used = static_cast<int64_t>(head.size() + digits.size());
  if (style.width > used) digits.insert(0, static_cast<size_t>(style.width - used), style.zero ? '0' : ' ');
  return head + digits;
}

}  // namespace mxt::jinja
