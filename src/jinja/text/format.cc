#include "jinja/text/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "jinja/text/number_format.h"
#include "jinja/text/repr.h"
#include "jinja/values/operators.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

constexpr int64_t kWidest = 100000;  // of a field

// Pads `body` to a width in characters.
void add_padded(Machine& m, Builder& out, const Str& body, int64_t width, char align, std::string_view fill) {
  const auto n = static_cast<int64_t>(pytext::length(body.text));
  const int64_t missing = std::max<int64_t>(0, width - n);
  if (missing > kWidest) m.fail_limit("pads a field to more than 100000 characters");
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  for (int64_t i = 0; i < left; ++i) out.add(fill);
  out.add(body);
  for (int64_t i = left; i < missing; ++i) out.add(fill);
}

class Percent {
 public:
  Percent(Machine& m, const StrRef& format, const Value& args)
      : m_(m), format_(format), args_(args), out_(m), mapping_(args.is(Kind::kDict)) {}

  Value run() {
    const std::string& f = format_->text;
    out_.set_markup(format_->markup);
    size_t from = 0;
    for (size_t i = f.find('%'); i != std::string::npos; i = f.find('%', i)) {
      out_.add(*format_, from, i);
      i = field(i + 1);
      from = i;
    }
    out_.add(*format_, from, f.size());
    const bool tuple = args_.is(Kind::kTuple);
    if (!used_mapping_ &&
        (tuple ? used_ < args_.as<List>().items.size() : used_ == 0 && !mapping_ && !args_.is(Kind::kList)))
      m_.fail("not all arguments converted during string formatting");
    return Value::string(out_.finish());
  }

 private:
  char at(size_t i) const {
    if (i >= format_->text.size()) m_.fail("incomplete format");
    return format_->text[i];
  }

  Value next() {
    if (args_.is(Kind::kTuple)) {
      const auto& items = args_.as<List>().items;
      if (used_ >= items.size()) m_.fail("not enough arguments for format string");
      return items[used_++];
    }
    if (used_++ > 0) m_.fail("not enough arguments for format string");
    return args_;
  }

  int64_t number(size_t& i) {
    if (at(i) == '*') {
      ++i;
      return require_index(m_, next(), "%*");
    }
    int64_t n = 0;
    for (; at(i) >= '0' && at(i) <= '9'; ++i) {
      n = n * 10 + (at(i) - '0');
      if (n > kWidest) m_.fail_limit("formats a field of more than 100000 characters");
    }
    return n;
  }

  size_t field(size_t i) {
    NumberStyle style;
    bool left = false, keyed = false;
    Value value;
    if (at(i) == '(') {
      const size_t close = format_->text.find(')', i);
      if (close == std::string::npos) m_.fail("incomplete format key");
      if (!mapping_) m_.fail("format requires a mapping");
      const std::string key = format_->text.substr(i + 1, close - i - 1);
      const Value* found = args_.as<Dict>().find(std::string_view(key));
      if (!found) m_.fail("'%({})s': the key is missing", key);
      value = *found;
      keyed = used_mapping_ = true;
      i = close + 1;
    }
    for (;; ++i) {
      const char c = at(i);
      if (c == '-')
        left = true;
      else if (c == '+')
        style.sign = '+';
      else if (c == ' ')
        style.sign = style.sign == '+' ? '+' : ' ';
      else if (c == '#')
        style.alternate = true;
      else if (c == '0')
        style.zero = true;
      else
        break;
    }
    int64_t width = number(i);
    if (width < 0) {
      left = true;
      width = -width;
    }
    if (width > kWidest) m_.fail_limit("formats a field of more than 100000 characters");
    if (at(i) == '.') {
      ++i;
      style.precision = std::max<int64_t>(0, number(i));
      if (style.precision > kWidest) m_.fail_limit("formats a field of more than 100000 characters");
    }
    while (at(i) == 'l' || at(i) == 'h' || at(i) == 'L') ++i;
    const char type = at(i);
    if (type == '%') {
      out_.add("%");
      return i + 1;
    }
    if (!keyed) value = next();
    convert(type, value, style, left, width);
    return i + 1;
  }

  void convert(char type, const Value& value, NumberStyle style, bool left, int64_t width) {
    StrRef body;
    switch (type) {
      case 's':
        body = format_->markup ? html_escape(m_, value) : to_str(m_, value);
        break;
      case 'r':
      case 'a':
        body = to_repr(m_, value);
        break;
      case 'c':
        body = one_character(value);
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (left) style.zero = false;
        style.type = type == 'i' || type == 'u' ? 'd' : type;
        style.width = style.zero ? width : 0;
        body = m_.text(number_text(m_, value, style)).ref();
        break;
      }
      default:
        m_.fail("unsupported format character '{}'", type);
    }
    if ((type == 's' || type == 'r') && style.precision >= 0)
      body = slice(m_, body, 0, pytext::byte_offset(body->text, static_cast<size_t>(style.precision)));
    add_padded(m_, out_, *body, width, left ? '<' : '>', " ");
  }

  StrRef one_character(const Value& value) {
    if (value.is_string()) {
      if (pytext::length(value.text()) != 1) m_.fail("%c requires int or char");
      return value.ref();
    }
    if (!value.is_integral()) m_.fail("%c requires int or char");
    const Int c = value.as_int();
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) m_.fail("%c arg not in range(0x110000)");
    std::string s;
    append_utf8(s, static_cast<uint32_t>(c));
    return m_.text(s).ref();
  }

  Machine& m_;
  const StrRef& format_;
  const Value& args_;
  Builder out_;
  bool mapping_, used_mapping_ = false;
  size_t used_ = 0;
};

// str.format.
class Brace {
 public:
  Brace(Machine& m, const Args& args, const FieldAccess& access) : m_(m), args_(args), access_(access) {}

  void run(Builder& out, const Str& f, size_t begin, size_t end, int depth) {
    if (depth > 2) m_.fail("Max string recursion exceeded");
    const std::string& s = f.text;
    size_t from = begin;
    for (size_t i = begin; i < end; ++i) {
      if (s[i] != '{' && s[i] != '}') continue;
      out.add(f, from, i);
      if (i + 1 < end && s[i + 1] == s[i]) {
        out.add(f, i, i + 1);
        from = i + 2;
        ++i;
        continue;
      }
      if (s[i] == '}') m_.fail("Single '}}' encountered in format string");
      const size_t close = matching(s, i + 1, end);
      field(out, f, i + 1, close, depth);
      from = close + 1;
      i = close;
    }
    out.add(f, from, end);
  }

 private:
  size_t matching(const std::string& s, size_t i, size_t end) const {
    int open = 1;
    bool bracket = false;
    for (; i < end; ++i) {
      if (s[i] == '[') bracket = true;
      if (s[i] == ']') bracket = false;
      if (bracket) continue;
      if (s[i] == '{') ++open;
      if (s[i] == '}' && --open == 0) return i;
    }
    m_.fail("expected '}}' before end of string");
  }

  void field(Builder& out, const Str& f, size_t begin, size_t end, int depth) {
    const std::string& s = f.text;
    size_t name_end = begin;
    bool bracket = false;
    while (name_end < end && (bracket || (s[name_end] != '!' && s[name_end] != ':'))) {
      if (s[name_end] == '[') bracket = true;
      if (s[name_end] == ']') bracket = false;
      if (s[name_end] == '{') m_.fail("unexpected '{{' in field name");
      ++name_end;
    }
    Value value = lookup(std::string_view(s).substr(begin, name_end - begin));
    size_t i = name_end;
    if (i < end && s[i] == '!') {
      if (i + 1 >= end || (i + 2 < end && s[i + 2] != ':')) m_.fail("expected ':' after conversion specifier");
      const char how = s[i + 1];
      if (how == 's')
        value = Value::string(to_str(m_, value));
      else if (how == 'r' || how == 'a')
        value = Value::string(to_repr(m_, value));
      else
        m_.fail("Unknown conversion specifier {}", how);
      i += 2;
    }
    std::string spec;
    if (i < end) {  // ':'
      Builder b(m_);
      run(b, f, i + 1, end, depth + 1);
      spec = b.text();
    }
    add(out, value, spec);
  }

  Value lookup(std::string_view name) {
    const size_t stop = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, stop);
    Value v = base(first);
    for (size_t i = stop; i < name.size();) {
      if (name[i] == '.') {
        const size_t next = std::min(name.find_first_of(".[", i + 1), name.size());
        if (next == i + 1) m_.fail("Empty attribute in format string");
        v = access_.attribute(m_, v, name.substr(i + 1, next - i - 1));
        i = next;
      } else if (name[i] == '[') {
        const size_t close = name.find(']', i);
        if (close == std::string_view::npos) m_.fail("Missing ']' in format string");
        const std::string_view key = name.substr(i + 1, close - i - 1);
        if (key.empty()) m_.fail("Empty attribute in format string");
        v = access_.item(m_, v, digits(key) ? Value::integer(to_index(key)) : m_.text(std::string(key)));
        i = close + 1;
      } else {
        m_.fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  static bool digits(std::string_view s) {
    return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  int64_t to_index(std::string_view s) const {
    if (s.size() > 9) m_.fail("Too many decimal digits in format string");
    return std::stol(std::string(s));
  }

  Value base(std::string_view first) {
    size_t at = 0;
    if (first.empty()) {
      if (manual_) m_.fail("cannot switch from manual field specification to automatic field numbering");
      automatic_ = true;
      at = next_++;
    } else if (digits(first)) {
      if (automatic_) m_.fail("cannot switch from automatic field numbering to manual field specification");
      manual_ = true;
      at = static_cast<size_t>(to_index(first));
    } else {
      for (const auto& [name, value] : args_.named)
        if (name == first) return value;
      m_.fail("str.format: there is no argument '{}'", first);
    }
    if (at >= args_.positional.size()) m_.fail("Replacement index {} out of range for positional args tuple", at);
    return args_.positional[at];
  }

  void add(Builder& out, const Value& value, const std::string& text) {
    if (text.empty()) return out.add(value);
    FormatSpec spec = parse_spec(m_, text);
    if (value.is_string()) {
      if (spec.number.sign != '-' || spec.number.alternate || spec.number.grouping || spec.number.zero_flag_align())
        m_.fail("this format is not allowed for a string");
      if (spec.number.type && spec.number.type != 's')
        m_.fail("Unknown format code '{}' for object of type 'str'", spec.number.type);
      StrRef body = value.ref();
      if (spec.number.precision >= 0)
        body = slice(m_, body, 0, pytext::byte_offset(body->text, static_cast<size_t>(spec.number.precision)));
      return add_padded(m_, out, *body, spec.width, spec.align ? spec.align : '<', spec.fill);
    }
    if (value.is_number()) {
      if (value.is(Kind::kBool) && !spec.number.type) return add_padded_text(out, value.as_bool() ? "1" : "0", spec);
      if (spec.align == '=' && spec.fill != "0" && spec.fill != " ")
        m_.fail("a fill other than 0 after the sign is not supported");
      if (spec.align == '=') spec.number.width = spec.width;
      spec.number.zero = spec.align == '=' && spec.fill == "0";
      return add_padded_text(out, number_text(m_, value, spec.number), spec);
    }
    m_.fail("unsupported format string passed to {}.__format__", type_name(value));
  }

  void add_padded_text(Builder& out, const std::string& text, const FormatSpec& spec) {
    add_padded(m_, out, *m_.text(text).ref(), spec.width, spec.align && spec.align != '=' ? spec.align : '>',
               spec.fill);
  }

  Machine& m_;
  const Args& args_;
  const FieldAccess& access_;
  bool automatic_ = false, manual_ = false;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(Machine& m, const StrRef& format, const Value& args) { return Percent(m, format, args).run(); }

Value brace_format(Machine& m, const StrRef& format, const Args& args, const FieldAccess& access) {
  Builder out(m);
  out.set_markup(format->markup);
  Brace(m, args, access).run(out, *format, 0, format->text.size(), 0);
  return Value::string(out.finish());
}

StrRef with_markup(Machine& m, const StrRef& s, bool markup) {
  if (s->markup == markup) return s;
  Builder out(m);
  out.add(*s);
  out.set_markup(markup);
  return out.finish();
}

StrRef html_escape(Machine& m, const Value& v) {
  const StrRef s = to_str(m, v);
  if (s->markup) return s;
  Builder out(m);
  out.set_markup(true);
  size_t from = 0;
  const std::string& t = s->text;
  for (size_t i = t.find_first_of("&<>\"'"); i != std::string::npos; i = t.find_first_of("&<>\"'", i + 1)) {
    out.add(*s, from, i);
    const char* entity = t[i] == '&'   ? "&amp;"
                         : t[i] == '<' ? "&lt;"
                         : t[i] == '>' ? "&gt;"
                         : t[i] == '"' ? "&#34;"
                                       : "&#39;";
    out.add(entity, tag_at(*s, i));
    from = i + 1;
  }
  out.add(*s, from, t.size());
  return out.finish();
}

}  // namespace mxt::jinja
