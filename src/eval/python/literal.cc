#include "eval/python/literal.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "jinja/text/number_format.h"
#include "jinja/text/repr.h"
#include "jinja/values/from_json.h"
#include "pytext/unicode.h"

namespace mxt::eval {

namespace {

// Recursive descent over the literals of Python's grammar.
class Reader {
 public:
  explicit Reader(std::string_view s) : s_(s) {}

  std::optional<OrderedJson> run() {
    OrderedJson v;
    space();
    if (!value(v)) return std::nullopt;
    space();
    if (at_ < s_.size() && s_[at_] == ',') {  // a tuple without parentheses
      OrderedJson tuple = OrderedJson::array({v});
      while (at_ < s_.size() && s_[at_] == ',') {
        ++at_;
        space();
        if (at_ == s_.size()) break;
        if (!value(v)) return std::nullopt;
        tuple.push_back(v);
        space();
      }
      v = tuple;
    }
    if (at_ != s_.size()) return std::nullopt;
    return v;
  }

 private:
  void space() {
    while (at_ < s_.size() &&
           (s_[at_] == ' ' || s_[at_] == '\t' || (depth_ > 0 && (s_[at_] == '\n' || s_[at_] == '\r'))))
      ++at_;
  }
  bool word(std::string_view w) {
    if (s_.substr(at_, w.size()) != w) return false;
    const char next = at_ + w.size() < s_.size() ? s_[at_ + w.size()] : ' ';
    if ((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') || (next >= '0' && next <= '9') || next == '_')
      return false;
    at_ += w.size();
    return true;
  }

  bool value(OrderedJson& out) {
    if (at_ >= s_.size() || depth_ > 100) return false;
    const char c = s_[at_];
    if (c == '[' || c == '(') return sequence(out, c == '[' ? ']' : ')');
    if (c == '{') return braces(out);
    if (c == '\'' || c == '"' ||
        ((c == 'r' || c == 'u' || c == 'R' || c == 'U') && at_ + 1 < s_.size() &&
         (s_[at_ + 1] == '\'' || s_[at_ + 1] == '"'))) {
      std::string text;
      do {  // neighbours are joined
        if (!string(text)) return false;
        space();
      } while (at_ < s_.size() && (s_[at_] == '\'' || s_[at_] == '"'));
      out = text;
      return true;
    }
    if (word("None")) return out = nullptr, true;
    if (word("True")) return out = true, true;
    if (word("False")) return out = false, true;
    return number(out);
  }

  bool sequence(OrderedJson& out, char close) {
    ++at_;
    ++depth_;
    out = OrderedJson::array();
    bool comma = false;
    for (;;) {
      space();
      if (at_ >= s_.size()) return false;
      if (s_[at_] == close) break;
      if (!out.empty() && !comma) return false;
      OrderedJson item;
      if (!value(item)) return false;
      out.push_back(std::move(item));
      space();
      comma = at_ < s_.size() && s_[at_] == ',';
      if (comma) ++at_;
    }
    ++at_;
    --depth_;
    if (close == ')' && out.size() == 1 && !comma) out = OrderedJson(out[0]);  // parentheses, not a tuple
    return true;
  }

  bool braces(OrderedJson& out) {
    ++at_;
    ++depth_;
    OrderedJson map = OrderedJson::object(), set = OrderedJson::array();
    bool is_set = false, first = true, comma = true;
    for (;;) {
      space();
      if (at_ >= s_.size()) return false;
      if (s_[at_] == '}') break;
      if (!comma) return false;
      OrderedJson key;
      if (!value(key)) return false;
      space();
      if (at_ < s_.size() && s_[at_] == ':') {
        if (is_set) return false;
        ++at_;
        space();
        OrderedJson item;
        if (!value(item)) return false;
        map[python_str(key)] = std::move(item);
      } else {
        if (!first && !is_set) return false;
        is_set = true;
        set.push_back(std::move(key));
      }
      first = false;
      space();
      comma = at_ < s_.size() && s_[at_] == ',';
      if (comma) ++at_;
    }
    ++at_;
    --depth_;
    out = is_set ? set : map;
    return true;
  }

  bool string(std::string& out) {
    bool raw = false;
    if (s_[at_] != '\'' && s_[at_] != '"') {
      raw = (s_[at_] | 0x20) == 'r';
      ++at_;
    }
    const char q = s_[at_];
    const bool triple = s_.substr(at_, 3) == std::string(3, q);
    at_ += triple ? 3 : 1;
    for (;;) {
      if (at_ >= s_.size()) return false;
      const char c = s_[at_];
      if (c == q && (!triple || s_.substr(at_, 3) == std::string(3, q))) {
        at_ += triple ? 3 : 1;
        return true;
      }
      if (c == '\n' && !triple) return false;
      ++at_;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= s_.size()) return false;
      const char e = s_[at_++];
      if (raw) {
        out += '\\';
        out += e;
        continue;
      }
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t k = kFrom.find(e); k != std::string_view::npos)
        out += kTo[k];
      else if (e == '\n')
        continue;
      else if (e == 'x' || e == 'u' || e == 'U') {
        const size_t n = e == 'x' ? 2 : e == 'u' ? 4 : 8;
        uint32_t v = 0;
        if (at_ + n > s_.size()) return false;
        const auto [p, ec] = std::from_chars(s_.data() + at_, s_.data() + at_ + n, v, 16);
        if (ec != std::errc() || p != s_.data() + at_ + n || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) return false;
        append_utf8(out, v);
        at_ += n;
      } else if (e >= '0' && e <= '7') {
        uint32_t v = static_cast<uint32_t>(e - '0');
        for (int i = 0; i < 2 && at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '7'; ++i)
          v = v * 8 + static_cast<uint32_t>(s_[at_++] - '0');
        append_utf8(out, v);
      } else {
        out += '\\';
        out += e;
      }
    }
  }

  bool number(OrderedJson& out) {
    size_t i = at_;
    std::string text;
    if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) {
      if (s_[i] == '-') text += '-';
      ++i;
    }
    const size_t digits = i;
    bool real = false;
    for (; i < s_.size(); ++i) {
      const char c = s_[i];
      if (c >= '0' && c <= '9')
        text += c;
      else if (c == '_' && i > digits)
        continue;
      else if (c == '.' || c == 'e' || c == 'E')
        real = true, text += c;
      else if ((c == '-' || c == '+') && (s_[i - 1] == 'e' || s_[i - 1] == 'E'))
        text += c;
      else
        break;
    }
    if (i == digits) return false;
    at_ = i;
    const char* b = text.data();
    const char* e = b + text.size();
    if (!real) {
      const size_t sign = text[0] == '-';
      if (text.size() > sign + 1 && text[sign] == '0' && text.find_first_not_of('0', sign) != std::string::npos)
        return false;  // 010
      int64_t v = 0;
      if (const auto [p, ec] = std::from_chars(b, e, v); ec == std::errc() && p == e) return out = v, true;
      out = OrderedJson::binary({text.begin(), text.end()});  // as parse_ordered_json keeps what is longer
      return true;
    }
    double v = 0;
    const auto [p, ec] = std::from_chars(b, e, v);
    if (ec != std::errc() || p != e) return false;
    out = v;
    return true;
  }

  std::string_view s_;
  size_t at_ = 0;
  int depth_ = 0;
};

template <typename F>
std::string map_case(std::string_view s, F&& f) {
  std::string out;
  for (size_t i = 0, size = 0; i < s.size(); i += size) f(out, pytext::code_point(s, i, size), i);
  return out;
}
void to_lower(std::string& out, char32_t c, std::string_view s, size_t i) {
  if (c == 0x3a3 && pytext::is_final_sigma(s, i))
    out += "ς";
  else
    pytext::append_lower(out, c);
}

}  // namespace

std::optional<OrderedJson> literal_eval(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n')) text.remove_suffix(1);
  return Reader(text).run();
}

std::string python_repr(const OrderedJson& v) {
  jinja::Limits limits;
  jinja::Machine m("value", limits);
  return jinja::to_repr(m, jinja::from_json(m, v))->text;
}

std::string python_str(const OrderedJson& v) { return v.is_string() ? v.get<std::string>() : python_repr(v); }

std::string json_dumps_indent(const OrderedJson& v) {
  jinja::Limits limits;
  jinja::Machine m("value", limits);
  jinja::JsonStyle style;
  style.has_indent = true;
  style.indent = "  ";
  style.item_separator = ",";
  return jinja::to_json(m, jinja::from_json(m, v), style)->text;
}

bool is_digit_text(std::string_view s) {
  for (size_t i = 0, size = 0; i < s.size(); i += size)
    if (!pytext::is_digit(pytext::code_point(s, i, size))) return false;
  return !s.empty();
}

std::string lower(std::string_view s) {
  return map_case(s, [&](std::string& out, char32_t c, size_t i) { to_lower(out, c, s, i); });
}
std::string upper(std::string_view s) {
  return map_case(s, [](std::string& out, char32_t c, size_t) { pytext::append_upper(out, c); });
}
std::string capitalize(std::string_view s) {
  return map_case(s, [&](std::string& out, char32_t c, size_t i) {
    if (i == 0)
      pytext::append_title(out, c);
    else
      to_lower(out, c, s, i);
  });
}

std::string strip(std::string_view s, bool left, bool right) {
  const size_t end = right ? pytext::rskip_space(s, s.size()) : s.size();
  const size_t begin = left ? std::min(pytext::skip_space(s, 0), end) : 0;
  return std::string(s.substr(begin, end - begin));
}

bool begins_with_space(std::string_view s) {
  size_t size = 0;
  return !s.empty() && pytext::is_space(pytext::code_point(s, 0, size));
}
bool ends_with_space(std::string_view s) {
  size_t size = 0;
  return !s.empty() && pytext::is_space(pytext::code_point_before(s, s.size(), size));
}

size_t characters(std::string_view s) { return pytext::length(s); }

std::string replace_all(std::string_view s, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t i = s.find(from); i != std::string_view::npos; i = s.find(from, at)) {
    out += s.substr(at, i - at);
    out += to;
    at = i + from.size();
  }
  out += s.substr(at);
  return out;
}

}  // namespace mxt::eval
