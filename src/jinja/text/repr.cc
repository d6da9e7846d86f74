#include "jinja/text/repr.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/values/operators.h"
#include "pytext/unicode.h"

namespace mxt::jinja {

std::string int_text(Int i) {
  if (i == 0) return "0";
  const bool negative = i < 0;
  auto u = static_cast<unsigned __int128>(i);
  if (negative) u = -u;
  std::string s;
  for (; u != 0; u /= 10) s.push_back(static_cast<char>('0' + static_cast<int>(u % 10)));
  if (negative) s.push_back('-');
  std::reverse(s.begin(), s.end());
  return s;
}

std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string s(buffer, end);
  const size_t e = s.find('e');
  const int exponent = std::stoi(s.substr(e + 1));
  if (exponent >= -4 && exponent < 16) {  // where Python's repr changes to an exponent
    end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed).ptr;
    std::string fixed(buffer, end);
    if (fixed.find('.') == std::string::npos) fixed += ".0";
    return fixed;
  }
  return s;
}

namespace {

constexpr char kHex[] = "0123456789abcdef";

void add_hex(std::string& out, char32_t c, int digits) {
  for (int i = digits - 1; i >= 0; --i) out.push_back(kHex[(c >> (4 * i)) & 15]);
}

std::string repr_escape(char32_t c) {
  std::string e = "\\";
  if (c == '\t') return e += 't';
  if (c == '\n') return e += 'n';
  if (c == '\r') return e += 'r';
  if (c < 0x100) {
    e += 'x';
    add_hex(e, c, 2);
  } else if (c < 0x10000) {
    e += 'u';
    add_hex(e, c, 4);
  } else {
    e += 'U';
    add_hex(e, c, 8);
  }
  return e;
}

class Printer {
 public:
  Printer(Machine& m, Builder& out) : m_(m), out_(out) {}

  void print(const Value& v) {
    Level level(m_);
    m_.step();
    switch (v.kind()) {
      case Kind::kUndefined:
        return out_.add("Undefined");
      case Kind::kNone:
        return out_.add("None");
      case Kind::kBool:
        return out_.add(v.as_bool() ? "True" : "False");
      case Kind::kInt:
        return out_.add(int_text(v.as_int()));
      case Kind::kFloat:
        return out_.add(float_text(v.as_real()));
      case Kind::kBigInt:
        return out_.add(v.text());
      case Kind::kString:
        return add_repr(m_, out_, v.str());
      case Kind::kList:
        return sequence(v.as<List>(), "[", "]");
      case Kind::kTuple:
        return sequence(v.as<List>(), "(", v.as<List>().items.size() == 1 ? ",)" : ")");
      case Kind::kDict:
        return dict(v.as<Dict>());
      case Kind::kRange:
        return range(v.as<Range>());
      case Kind::kView:
        return view(v.as<View>());
      case Kind::kNamespace:
        out_.add("<Namespace ");
        dict(v.as<Namespace>().attributes);
        return out_.add(">");
      case Kind::kSlice: {
        const auto& s = v.as<Slice>();
        out_.add("slice(");
        print(s.start);
        out_.add(", ");
        print(s.stop);
        out_.add(", ");
        print(s.step);
        return out_.add(")");
      }
      default:
        // Python would print an address, which no two runs share.
        m_.fail("cannot print a {}: call it or turn it into a list first", type_name(v));
    }
  }

 private:
  void sequence(const List& l, std::string_view open, std::string_view close) {
    const Tag tag{l.origin, 0};
    out_.add(open, tag);
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i) out_.add(", ", tag);
      print(l.items[i]);
    }
    out_.add(close, tag);
  }

  void dict(const Dict& d) {
    const Tag tag{d.origin, 0};
    out_.add("{", tag);
    for (size_t i = 0; i < d.items.size(); ++i) {
      if (i) out_.add(", ", tag);
      print(d.items[i].first);
      out_.add(": ", tag);
      print(d.items[i].second);
    }
    out_.add("}", tag);
  }

  void range(const Range& r) {
    out_.add(fmt::format("range({}, {}", r.start, r.stop));
    out_.add(r.step == 1 ? ")" : fmt::format(", {})", r.step));
  }

  void view(const View& v) {
    static constexpr std::string_view kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
    out_.add(kNames[static_cast<int>(v.what)]);
    bool first = true;
    for (const auto& [key, value] : v.dict->items) {
      if (!first) out_.add(", ");
      first = false;
      if (v.what == View::What::kItems) {
        out_.add("(");
        print(key);
        out_.add(", ");
        print(value);
        out_.add(")");
      } else {
        print(v.what == View::What::kKeys ? key : value);
      }
    }
    out_.add("])");
  }

  Machine& m_;
  Builder& out_;
};

class JsonWriter {
 public:
  JsonWriter(Machine& m, Builder& out, const JsonStyle& style) : m_(m), out_(out), style_(style) {}

  void write(const Value& v, Tag tag) {
    Level level(m_);
    m_.step();
    switch (v.kind()) {
      case Kind::kNone:
        return out_.add("null", tag);
      case Kind::kBool:
        return out_.add(v.as_bool() ? "true" : "false", tag);
      case Kind::kInt:
        return out_.add(int_text(v.as_int()), tag);
      case Kind::kFloat:
        return out_.add(number(v.as_real()), tag);
      case Kind::kBigInt:
        return out_.add(v.text(), tag);
      case Kind::kString:
        return string(v.str());
      case Kind::kList:
      case Kind::kTuple:
        return list(v.as<List>());
      case Kind::kDict:
        return dict(v.as<Dict>());
      default:
        m_.fail("tojson: an object of type {} is not JSON serializable", type_name(v));
    }
  }

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }

  void line(Tag tag) {
    if (!style_.has_indent) return;
    out_.add("\n", tag);
    for (uint32_t i = 0; i < depth_; ++i) out_.add(style_.indent, tag);
  }

  void list(const List& l) {
    const Tag tag{l.origin, 0};
    out_.add("[", tag);
    ++depth_;
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i) out_.add(style_.item_separator, tag);
      line(tag);
      write(l.items[i], tag);
    }
    --depth_;
    if (!l.items.empty()) line(tag);
    out_.add("]", tag);
  }

  void dict(const Dict& d) {
    const Tag tag{d.origin, 0};
    std::vector<const std::pair<Value, Value>*> items;
    m_.touch_items(d.items.size());
    for (const auto& item : d.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [this](const auto* a, const auto* b) { return less_than(m_, a->first, b->first); });
    out_.add("{", tag);
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_.add(style_.item_separator, tag);
      line(tag);
      key(items[i]->first, tag);
      out_.add(style_.key_separator, tag);
      write(items[i]->second, tag);
    }
    --depth_;
    if (!items.empty()) line(tag);
    out_.add("}", tag);
  }

  void key(const Value& k, Tag tag) {
    if (k.is_string()) return string(k.str());
    if (!k.is_number() && !k.is_none() && !k.is(Kind::kBigInt))
      m_.fail("tojson: keys must be str, int, float, bool or None, not {}", type_name(k));
    out_.add("\"", tag);
    write(k, tag);
    out_.add("\"", tag);
  }

  void string(const Str& s) {
    const Tag edge_begin = s.text.empty() ? s.tag : tag_at(s, 0);
    const Tag edge_end = s.text.empty() ? s.tag : tag_at(s, s.text.size() - 1);
    out_.add("\"", edge_begin);
    size_t from = 0, size = 0;
    for (size_t i = 0; i < s.text.size(); i += size) {
      const char32_t c = pytext::code_point(s.text, i, size);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !style_.ensure_ascii)) continue;
      if (c == 0x7f) continue;
      out_.add(s, from, i);
      out_.add(escape(c), tag_at(s, i));
      from = i + size;
    }
    out_.add(s, from, s.text.size());
    out_.add("\"", edge_end);
  }

  static std::string escape(char32_t c) {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    std::string e = "\\u";
    if (c < 0x10000) {
      add_hex(e, c, 4);
    } else {
      c -= 0x10000;
      add_hex(e, 0xd800 + (c >> 10), 4);
      e += "\\u";
      add_hex(e, 0xdc00 + (c & 0x3ff), 4);
    }
    return e;
  }

  Machine& m_;
  Builder& out_;
  const JsonStyle& style_;
  uint32_t depth_ = 0;
};

}  // namespace

void add_repr(Machine& m, Builder& out, const Str& s) {
  m.touch_bytes(s.text.size());
  const bool double_quote = s.text.find('\'') != std::string::npos && s.text.find('"') == std::string::npos;
  const char quote = double_quote ? '"' : '\'';
  const std::string_view q(&quote, 1);
  if (s.markup) out.add("Markup(");
  out.add(q, s.text.empty() ? s.tag : tag_at(s, 0));
  size_t from = 0, size = 0;
  for (size_t i = 0; i < s.text.size(); i += size) {
    const char32_t c = pytext::code_point(s.text, i, size);
    const bool plain = pytext::is_printable(c) && c != '\\' && c != static_cast<char32_t>(quote);
    if (plain) continue;
    out.add(s, from, i);
    const bool backslash = c == '\\' || c == static_cast<char32_t>(quote);
    out.add(backslash ? std::string{'\\', static_cast<char>(c)} : repr_escape(c), tag_at(s, i));
    from = i + size;
  }
  out.add(s, from, s.text.size());
  out.add(q, s.text.empty() ? s.tag : tag_at(s, s.text.size() - 1));
  if (s.markup) out.add(")");
}

StrRef to_repr(Machine& m, const Value& v) {
  Builder out(m);
  Printer(m, out).print(v);
  return out.finish();
}

StrRef to_str(Machine& m, const Value& v) {
  m.check_defined(v);
  if (v.is_string()) return v.ref();
  if (v.is_undefined()) return Builder(m).finish();
  return to_repr(m, v);
}

std::string brief(Machine& m, const Value& v) {
  switch (v.kind()) {
    case Kind::kString:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kBigInt:
    case Kind::kBool:
    case Kind::kNone: {
      std::string s = to_repr(m, v)->text;
      if (s.size() > 80) s = s.substr(0, pytext::byte_offset(s, 60)) + "…";
      return s;
    }
    default:
      return std::string(type_name(v)) + " object";
  }
}

StrRef to_json(Machine& m, const Value& v, const JsonStyle& style) {
  Builder out(m);
  JsonWriter(m, out, style).write(v, {});
  return out.finish();
}

}  // namespace mxt::jinja
