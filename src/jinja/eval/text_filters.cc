// Filters that make text or numbers of one value.
#include "jinja/eval/text_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/eval/builtins.h"
#include "jinja/eval/interp.h"
#include "jinja/text/number_format.h"
#include "jinja/text/repr.h"
#include "jinja/text/strings.h"
#include "jinja/values/operators.h"
#include "pytext/python_regex.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

// A string argument of a filter that does not convert others.
StrRef need_text(Machine& m, const Value& v, std::string_view filter) {
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is_string()) m.fail("{}: expected str, not {}", filter, type_name(v));
  return v.ref();
}

template <CaseMap map>
Value case_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "filter", args, {});
  return Value::string(change_case(in.machine(), to_str(in.machine(), v), map));
}

Value title_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "title", args, {});
  const StrRef s = to_str(m, v);
  Builder out(m);
  std::string piece;
  bool start = true;  // Jinja's words begin after a blank or one of -({[<
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    const char32_t c = pytext::code_point(s->text, i, size);
    const bool boundary = pytext::is_space(c) ||
                          (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    piece.clear();
    if (boundary)
      piece = s->text.substr(i, size);
    else if (start)
      pytext::append_upper(piece, c);
    else if (c == 0x3a3 && pytext::is_final_sigma(s->text, i))
      piece = "ς";
    else
      pytext::append_lower(piece, c);
    start = boundary;
    out.add(piece, tag_at(*s, i));
  }
  return Value::string(out.finish());
}

Value trim_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "trim", args, {"chars"});
  const StrRef s = to_str(m, v);
  if (!b.given(0) || b[0].is_none()) return Value::string(strip(m, s, nullptr, true, true));
  const StrRef chars = need_text(m, b[0], "trim");
  return Value::string(strip(m, s, &chars->text, true, true));
}

Value replace_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "replace", args, {"old", "new", "count"}, 2);
  const int64_t count = b.given(2) && !b[2].is_none() ? b.integer(2, -1) : -1;
  const StrRef s = with_markup(m, to_str(m, v), false);
  return Value::string(replace(m, s, to_str(m, b[0])->text, *to_str(m, b[1]), count));
}

Value indent_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "indent", args, {"width", "first", "blank"});
  const StrRef s = need_text(m, v, "indent");
  std::string indention(4, ' ');
  if (b.given(0) && b[0].is_string()) {
    indention = b[0].text();
  } else if (b.given(0)) {
    const int64_t n = b.integer(0, 4);
    if (n > 10000) m.fail_limit("indents by more than 10000 characters");
    indention.assign(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
  }
  const bool blank = b.flag(2, false);
  Builder closed(m);
  closed.add(*s);
  closed.add("\n");
  const std::vector<Value> lines = split_lines(m, closed.finish(), false);
  Builder out(m);
  out.set_markup(s->markup);
  if (b.flag(1, false)) out.add(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.add("\n");
      if (blank || !lines[i].text().empty()) out.add(indention);
    }
    out.add(lines[i].str());
  }
  return Value::string(out.finish());
}

Value truncate_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "truncate", args, {"length", "killwords", "end", "leeway"});
  const StrRef end = b.given(2) ? need_text(m, b[2], "truncate") : m.text("...").ref();
  const int64_t limit = b.integer(0, 255);
  const int64_t leeway = b.given(3) && !b[3].is_none() ? b.integer(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(pytext::length(end->text));
  if (limit < end_length) m.fail("expected length >= {}, got {}", end_length, limit);
  if (leeway < 0) m.fail("expected leeway >= 0, got {}", leeway);
  if (static_cast<int64_t>(require_size(m, v)) <= limit + leeway) return v;
  const StrRef s = need_text(m, v, "truncate");
  size_t cut = pytext::byte_offset(s->text, static_cast<size_t>(limit - end_length));
  if (!b.flag(1, false)) {
    const size_t blank = std::string_view(s->text).substr(0, cut).rfind(' ');
    if (blank != std::string_view::npos) cut = blank;
  }
  Builder out(m);
  out.add(*s, 0, cut);
  out.add(*end);
  return Value::string(out.finish());
}

Value center_filter(Interp& in, const Value& v, const Args& args) {
  Bound b(in.machine(), "center", args, {"width"});
  return Value::string(justify(in.machine(), to_str(in.machine(), v), b.integer(0, 80), '^', " "));
}

Value string_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "string", args, {});
  return Value::string(to_str(in.machine(), v));
}

Value safe_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "safe", args, {});
  return Value::string(with_markup(in.machine(), to_str(in.machine(), v), true));
}

Value escape_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "escape", args, {});
  return Value::string(html_escape(in.machine(), v));
}

Value force_escape_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "forceescape", args, {});
  return Value::string(html_escape(m, Value::string(with_markup(m, to_str(m, v), false))));
}

Value wordcount_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "wordcount", args, {});
  const StrRef s = to_str(m, v);
  m.touch_bytes(s->text.size());
  Int n = 0;
  bool inside = false;
  for (size_t i = 0, size = 0; i < s->text.size(); i += size) {
    const bool word = pytext::is_word(pytext::code_point(s->text, i, size));
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

Value format_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  if (!args.positional.empty() && !args.named.empty())
    m.fail("can't handle positional and keyword arguments at the same time");
  if (args.named.empty()) return percent_format(m, to_str(m, v), m.list(args.positional, Kind::kTuple));
  Dict* d = m.make<Dict>(args.named.size() * 2 * sizeof(Value));
  for (const auto& [name, value] : args.named) d->set(m.text(name), value);
  return percent_format(m, to_str(m, v), Value::object(Kind::kDict, d));
}

Value urlencode_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound none(m, "urlencode", args, {});
  const auto quote = [&](Builder& out, const Value& part, bool query) {
    const StrRef s = to_str(m, part);
    static constexpr char kHex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s->text.size(); ++i) {
      const auto c = static_cast<unsigned char>(s->text[i]);
      const bool plain = std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
      if (plain)
        out.add(*s, i, i + 1);
      else if (c == ' ' && query)
        out.add("+", tag_at(*s, i));
      else
        out.add(std::string{'%', kHex[c >> 4], kHex[c & 15]}, tag_at(*s, i));
    }
  };
  Builder out(m);
  if (v.is_string() || !iterable(v)) {
    quote(out, v, false);
    return Value::string(out.finish());
  }
  bool first = true;
  const auto pair = [&](const Value& key, const Value& value) {
    if (!first) out.add("&");
    first = false;
    quote(out, key, true);
    out.add("=");
    quote(out, value, true);
  };
  if (v.is(Kind::kDict)) {
    for (const auto& [key, value] : v.as<Dict>().items) pair(key, value);
  } else {
    auto next = iterate(m, v);
    for (Value item; next(item);) {
      const auto two = to_items(m, item);
      if (two.size() != 2) m.fail("urlencode: expected pairs");
      pair(two[0], two[1]);
    }
  }
  return Value::string(out.finish());
}

Value tojson_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = b.flag(0, false);
  style.sort_keys = b.flag(3, false);
  if (b.given(1) && !b[1].is_none()) {
    style.has_indent = true;
    style.item_separator.assign(1, ',');
    if (b[1].is_string()) {
      style.indent = b[1].text();
    } else {
      const int64_t n = b.integer(1, 0);
      if (n > 1000) m.fail_limit("indents JSON by more than 1000 characters");
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
    }
  }
  if (b.given(2) && !b[2].is_none()) {
    const auto two = to_items(m, b[2]);
    if (two.size() != 2) m.fail("tojson: separators are a pair");
    style.item_separator = need_text(m, two[0], "tojson")->text;
    style.key_separator = need_text(m, two[1], "tojson")->text;
  }
  return Value::string(to_json(m, v, style));
}

// Python's int(text, base); nothing where it raises ValueError.
std::optional<Int> parse_int(Machine& m, std::string_view s, int64_t base) {
  s = s.substr(pytext::skip_space(s, 0));
  s = s.substr(0, pytext::rskip_space(s, s.size()));
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  const auto prefixed = [&](char letter) { return s.size() > 2 && s[0] == '0' && (s[1] | 0x20) == letter; };
  bool after_prefix = false;
  for (const auto& [letter, b] : {std::pair{'x', 16}, std::pair{'o', 8}, std::pair{'b', 2}})
    if (prefixed(letter) && (base == b || base == 0)) {
      base = b;
      s.remove_prefix(2);
      after_prefix = true;
      break;
    }
  if (base == 0) {
    if (s.size() > 1 && s[0] == '0' && s.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36) m.fail("int() base must be >= 2 and <= 36, or 0");
  Int value = 0;
  bool digit_before = after_prefix;
  if (s.empty()) return std::nullopt;
  for (size_t i = 0, size = 0; i < s.size(); i += size) {
    const char32_t c = pytext::code_point(s, i, size);
    if (c == '_') {
      if (!digit_before) return std::nullopt;
      digit_before = false;
      continue;
    }
    if (c >= 0x80) return std::nullopt;
    const int d = c >= '0' && c <= '9'                     ? static_cast<int>(c - '0')
                  : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? static_cast<int>((c | 0x20) - 'a' + 10)
                                                           : 99;
    if (d >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{d}, &value))
      m.fail("an integer grows beyond 128 bits");
    digit_before = true;
  }
  if (!digit_before) return std::nullopt;
  return negative ? -value : value;
}

// Python's float(text).
std::optional<double> parse_float(std::string_view s) {
  s = s.substr(pytext::skip_space(s, 0));
  s = s.substr(0, pytext::rskip_space(s, s.size()));
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  std::string digits;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto is_dig = [&](size_t k) { return k < s.size() && s[k] >= '0' && s[k] <= '9'; };
    if (s[i] == '_') {
      if (i == 0 || !is_dig(i - 1) || !is_dig(i + 1)) return std::nullopt;
      continue;
    }
    digits.push_back(s[i] >= 'A' && s[i] <= 'Z' ? static_cast<char>(s[i] + 32) : s[i]);
  }
  double d = 0;
  if (digits == "inf" || digits == "infinity") {
    d = HUGE_VAL;
  } else if (digits == "nan") {
    d = std::nan("");
  } else {
    if (digits.empty() || digits.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
    if (digits[0] == '+' || digits[0] == '-') return std::nullopt;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), d);
    if (r.ptr != digits.data() + digits.size()) return std::nullopt;
    if (r.ec == std::errc::result_out_of_range) {
      const size_t e = digits.find('e');
      const bool tiny = e != std::string::npos && e + 1 < digits.size() && digits[e + 1] == '-';
      d = tiny ? 0 : HUGE_VAL;
    } else if (r.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -d : d;
}

std::optional<Int> truncate_real(Machine& m, double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 1.7e38) m.fail("an integer grows beyond 128 bits");
  return static_cast<Int>(d);
}

Value int_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "int", args, {"default", "base"});
  const Value otherwise = b.get(0, Value::integer(0));
  if (v.is_undefined()) m.fail_undefined(v);
  if (v.is(Kind::kBigInt)) return v;
  std::optional<Int> i;
  if (v.is_string()) {
    i = parse_int(m, v.text(), b.integer(1, 10));
    if (!i)
      if (const auto d = parse_float(v.text())) i = truncate_real(m, *d);
  } else if (v.is_integral()) {
    i = v.as_int();
  } else if (v.is(Kind::kFloat)) {
    if (std::isinf(v.as_real())) m.fail("cannot convert float infinity to integer");
    i = truncate_real(m, v.as_real());
  }
  return i ? Value::integer(*i) : otherwise;
}

Value float_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "float", args, {"default"});
  if (v.is_undefined()) m.fail_undefined(v);
  if (v.is_number()) return Value::real(v.as_real());
  if (v.is_string())
    if (const auto d = parse_float(v.text())) return Value::real(*d);
  return b.get(0, Value::real(0.0));
}

Value abs_filter(Interp& in, const Value& v, const Args& args) {
  Bound none(in.machine(), "abs", args, {});
  if (!v.is_number()) in.machine().fail("bad operand type for abs(): '{}'", type_name(v));
  if (v.is(Kind::kFloat)) return Value::real(std::fabs(v.as_real()));
  return v.as_int() < 0 ? negate(in.machine(), v, true) : Value::integer(v.as_int());
}

double power_of_ten(int64_t n) { return std::pow(10.0, static_cast<double>(n)); }

Value round_int(Machine& m, Int i, int64_t digits) {
  if (digits >= 0) return Value::integer(i);
  if (digits < -37) return Value::integer(0);
  Int unit = 1;
  for (int64_t k = 0; k < -digits; ++k) unit *= 10;
  Int q = i / unit, r = i % unit;
  if (r < 0) {
    r += unit;
    --q;
  }
  if (r > unit - r || (r == unit - r && (q & 1))) ++q;  // half to even
  Int result = 0;
  if (__builtin_mul_overflow(q, unit, &result)) m.fail("an integer grows beyond 128 bits");
  return Value::integer(result);
}

double round_real(Machine& m, double d, int64_t digits) {
  if (!std::isfinite(d) || digits > 323) return d;
  if (digits < -308) return std::copysign(0.0, d);
  if (digits >= 0) {
    // printf rounds the exact binary value, half to even, as Python's round does.
    NumberStyle style;
    style.type = 'f';
    style.precision = digits;
    const std::string text = number_text(m, Value::real(d), style);
    return *parse_float(text);
  }
  if (std::fabs(d) < 1e37) {
    const auto whole = static_cast<Int>(d);
    const Value r = round_int(m, whole, digits);
    return static_cast<double>(r.as_int());
  }
  return d;
}

Value round_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "round", args, {"precision", "method"});
  if (v.is_undefined()) m.fail_undefined(v);
  if (!v.is_number()) m.fail("type {} doesn't define __round__ method", type_name(v));
  const int64_t digits = b.integer(0, 0);
  const std::string method = b.given(1) ? to_str(m, b[1])->text : "common";
  if (method == "common")
    return v.is_integral() ? round_int(m, v.as_int(), digits) : Value::real(round_real(m, v.as_real(), digits));
  if (method != "ceil" && method != "floor") m.fail("method must be common, ceil or floor");
  if (digits > 300 || digits < -300) m.fail("round: the precision is out of range");
  const double scale = power_of_ten(digits);
  const double scaled = v.as_real() * scale;
  if (!std::isfinite(scaled)) m.fail("cannot convert float {} to integer", float_text(scaled));
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filesize_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "filesizeformat", args, {"binary"});
  const bool binary = b.flag(0, false);
  std::optional<double> bytes;
  if (v.is_number()) bytes = v.as_real();
  if (v.is_string()) bytes = parse_float(v.text());
  if (!bytes || !std::isfinite(*bytes)) m.fail("could not convert to a number of bytes");
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return m.text("1 Byte");
  if (*bytes < base) return m.text(fmt::format("{} Bytes", int_text(static_cast<Int>(*bytes))));
  static constexpr char kPrefixes[] = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  do {
    unit *= base;
  } while (*bytes >= unit && ++i < 7);
  if (i == 7) unit = std::pow(base, 9);
  return m.text(
      fmt::format("{:.1f} {}{}", base * *bytes / unit, binary && i == 0 ? 'K' : kPrefixes[i], binary ? "iB" : "B"));
}

Value xmlattr_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "xmlattr", args, {"autospace"});
  if (!v.is(Kind::kDict)) m.fail("xmlattr: expected a mapping");
  Builder out(m);
  for (const auto& [key, value] : v.as<Dict>().items) {
    if (value.is_none() || value.is_undefined()) continue;
    const StrRef name = need_text(m, key, "xmlattr");
    if (name->text.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) m.fail("Invalid character in attribute name");
    if (out.size() > 0 || b.flag(0, true)) out.add(" ");
    out.add(*html_escape(m, key));
    out.add("=\"");
    out.add(*html_escape(m, value));
    out.add("\"");
  }
  return Value::string(out.finish());
}

}  // namespace

Value regex_replace_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "regex_replace", args, {"pattern", "repl", "count"}, 2);
  const StrRef text = need_text(m, v, "regex_replace"), pattern = need_text(m, b[0], "regex_replace"),
               with = need_text(m, b[1], "regex_replace");
  m.touch_bytes(text->text.size());
  const pytext::PythonRegex re(pattern->text, fmt::format("{}:{}", m.name(), m.line));
  return m.text(re.sub(with->text, text->text, static_cast<size_t>(std::max<int64_t>(b.integer(2, 0), 0))));
}

// Jinja2's htmlsafe_json_dumps; transformers puts its own tojson in its place.
Value html_tojson_filter(Interp& in, const Value& v, const Args& args) {
  Machine& m = in.machine();
  Bound b(m, "tojson", args, {"indent"});
  JsonStyle style;
  style.ensure_ascii = style.sort_keys = true;
  if (b.given(0) && !b[0].is_none()) {
    const int64_t n = b.integer(0, 0);
    if (n > 1000) m.fail_limit("indents JSON by more than 1000 characters");
    style.has_indent = true;
    style.item_separator.assign(1, ',');
    style.indent.assign(static_cast<size_t>(std::max<int64_t>(n, 0)), ' ');
  }
  Builder out(m);
  const StrRef json = to_json(m, v, style);
  std::string_view text = json->text;
  while (!text.empty()) {
    const size_t n = std::min(text.find_first_of("<>&'"), text.size());
    out.add(text.substr(0, n));
    if (n < text.size()) out.add(fmt::format("\\u{:04x}", static_cast<unsigned char>(text[n])));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return Value::string(out.finish());
}

namespace {

constexpr FilterEntry kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", case_filter<CaseMap::kCapitalize>},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"filesizeformat", filesize_filter},
    {"float", float_filter},
    {"forceescape", force_escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower", case_filter<CaseMap::kLower>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", case_filter<CaseMap::kUpper>},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
    {"xmlattr", xmlattr_filter},
};

}  // namespace

FilterFn find_text_filter(std::string_view name) {
  for (const FilterEntry& f : kFilters)
    if (f.name == name) return f.function;
  return nullptr;
}

}  // namespace mxt::jinja
