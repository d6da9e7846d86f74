#include "jinja/syntax/lexer.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/jinja.h"
#include "pytext/unicode.h"

namespace mxt::jinja {
namespace {

// \r\n and \r become \n; one newline at the very end goes.
std::string normalize(std::string_view source, bool drop_last) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (drop_last && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name, const Style& style)
      : s_(normalize(source, !style.keep_trailing_newline)), name_(name), style_(style) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) root();
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) const {
    throw TemplateError(fmt::format("{}:{}: {}", name_, line_, fmt::format(f, std::forward<A>(a)...)), line_);
  }

  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  bool starts(std::string_view what, size_t i) const { return s_.compare(i, what.size(), what) == 0; }

  // Moves to `to`, counting lines.
  void advance(size_t to) {
    line_ += static_cast<uint32_t>(
        std::count(s_.begin() + static_cast<int64_t>(at_), s_.begin() + static_cast<int64_t>(to), '\n'));
    line_starting_ = to > at_ ? s_[to - 1] == '\n' : line_starting_;
    at_ = to;
  }

  // Length of an end of a tag at i: `+` or `-` and the closing, with what they swallow. 0 where there is none.
  size_t tag_end(size_t i, std::string_view closing, bool plus, bool trim) const {
    size_t j = i;
    const bool minus = j < s_.size() && s_[j] == '-';
    const bool keep = plus && j < s_.size() && s_[j] == '+';
    if (minus || keep) ++j;
    if (!starts(closing, j)) return 0;
    j += closing.size();
    if (minus) return pytext::skip_space(s_, j) - i;
    if (!keep && trim && style_.trim_blocks && j < s_.size() && s_[j] == '\n') ++j;
    return j - i;
  }

  // Length of `{% raw %}` at i, or 0.
  size_t raw_begin(size_t i) const {
    size_t j = i + 2;
    if (j < s_.size() && (s_[j] == '-' || s_[j] == '+')) ++j;
    j = pytext::skip_space(s_, j);
    if (!starts("raw", j)) return 0;
    j = pytext::skip_space(s_, j + 3);
    if (starts("-%}", j)) return pytext::skip_space(s_, j + 3) - i;
    return starts("%}", j) ? j + 2 - i : 0;
  }

  void root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= s_.size()) {
        emit(TokenKind::kData, s_.substr(at_));
        return advance(s_.size());
      }
      if (s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#') break;
    }
    const char kind = s_[tag + 1];
    const size_t raw = kind == '%' ? raw_begin(tag) : 0;
    const char sign = tag + 2 < s_.size() && (s_[tag + 2] == '-' || s_[tag + 2] == '+') ? s_[tag + 2] : 0;
    data(tag, sign, kind == '{');
    advance(raw ? tag + raw : tag + 2 + (sign ? 1 : 0));
    if (raw) return raw_block();
    if (kind == '#') return comment();
    code(kind == '{');
  }

  // Text up to `tag`, stripped as the tag's sign and lstrip_blocks say.
  void data(size_t tag, char sign, bool variable) {
    size_t end = tag;
    if (sign == '-') {
      end = at_ + pytext::rskip_space(std::string_view(s_).substr(at_, tag - at_), tag - at_);
    } else if (sign != '+' && !variable && style_.lstrip_blocks) {
      const size_t newline = s_.substr(at_, tag - at_).rfind('\n');
      const size_t line = newline == std::string::npos ? at_ : at_ + newline + 1;
      if ((line > at_ || line_starting_) && pytext::skip_space(std::string_view(s_).substr(0, tag), line) == tag)
        end = line;
    }
    if (end > at_) emit(TokenKind::kData, s_.substr(at_, end - at_));
    advance(tag);
  }

  void raw_block() {
    for (size_t i = s_.find("{%", at_); i != std::string::npos; i = s_.find("{%", i + 1)) {
      size_t j = i + 2;
      const char sign = j < s_.size() && (s_[j] == '-' || s_[j] == '+') ? s_[j] : 0;
      j = pytext::skip_space(s_, j + (sign ? 1 : 0));
      if (!starts("endraw", j)) continue;
      j = pytext::skip_space(s_, j + 6);
      const size_t end = tag_end(j, "%}", true, true);
      if (end == 0) continue;
      data(i, sign, false);
      return advance(j + end);
    }
    fail("Missing end of raw directive");
  }

  void comment() {
    const size_t hash = s_.find("#}", at_);
    if (hash == std::string::npos) fail("Missing end of comment tag");
    // The sign before the closing belongs to it.
    const bool sign = hash > at_ && (s_[hash - 1] == '-' || s_[hash - 1] == '+');
    const size_t begin = sign ? hash - 1 : hash;
    advance(begin + tag_end(begin, "#}", true, true));
  }

  void code(bool variable) {
    emit(variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    const std::string_view closing = variable ? "}}" : "%}";
    std::string open;  // brackets that wait for their partner
    while (at_ < s_.size()) {
      if (open.empty()) {
        if (const size_t end = tag_end(at_, closing, !variable, !variable)) {
          emit(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          return advance(at_ + end);
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const size_t space = pytext::skip_space(s_, at_);
    if (space > at_) return advance(space);
    const char c = s_[at_];
    if (c >= '0' && c <= '9') return number();
    if (c == '"' || c == '\'') return string(c);
    size_t size = 0;
    const char32_t point = pytext::code_point(s_, at_, size);
    if (pytext::is_word(point)) return word();
    op(open);
  }

  void word() {
    size_t end = at_, size = 0;
    while (end < s_.size() && pytext::is_word(pytext::code_point(s_, end, size))) end += size;
    const std::string text = s_.substr(at_, end - at_);
    bool valid = pytext::is_name_start(pytext::code_point(text, 0, size));
    for (size_t i = size; valid && i < text.size(); i += size)
      valid = pytext::is_name_part(pytext::code_point(text, i, size));
    if (!valid) fail("Invalid character in identifier");
    emit(TokenKind::kName, text);
    advance(end);
  }

  // Digits with single underscores between them, from i.
  size_t digits(size_t i, std::string_view allowed) const {
    const auto ok = [&](size_t k) { return k < s_.size() && allowed.find(s_[k]) != std::string_view::npos; };
    while (ok(i) || (i < s_.size() && s_[i] == '_' && ok(i + 1))) ++i;
    return i;
  }

  void number() {
    static constexpr std::string_view kDecimal = "0123456789";
    const size_t whole = digits(at_, kDecimal);
    size_t end = whole;
    const auto exponent = [&](size_t i) {
      if (i >= s_.size() || (s_[i] != 'e' && s_[i] != 'E')) return size_t{0};
      size_t j = i + 1;
      if (j < s_.size() && (s_[j] == '+' || s_[j] == '-')) ++j;
      const size_t k = j < s_.size() && s_[j] != '_' ? digits(j, kDecimal) : j;
      return k > j ? k : size_t{0};
    };
    bool real = false;
    if (!(at_ > 0 && s_[at_ - 1] == '.')) {
      size_t fraction = whole;
      if (whole + 1 < s_.size() && s_[whole] == '.' && s_[whole + 1] != '_') {
        fraction = digits(whole + 1, kDecimal);
        if (fraction == whole + 1) fraction = whole;
      }
      if (const size_t e = exponent(fraction)) {
        end = e;
        real = true;
      } else if (fraction > whole) {
        end = fraction;
        real = true;
      }
    }
    if (!real && s_[at_] == '0') {
      const char base = at_ + 1 < s_.size() ? static_cast<char>(s_[at_ + 1] | 0x20) : '\0';
      const std::string_view allowed = base == 'x'   ? "0123456789abcdefABCDEF"
                                       : base == 'o' ? "01234567"
                                       : base == 'b' ? "01"
                                                     : "";
      const size_t based = allowed.empty() ? at_ + 2 : digits(at_ + 2, allowed);
      end = based > at_ + 2 && !allowed.empty() ? based : digits(at_, "0");
    }
    std::string text = s_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    emit(real ? TokenKind::kFloat : TokenKind::kInteger, text);
    advance(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) fail("unexpected char '{}'", quote);
    emit(TokenKind::kString, unescape(std::string_view(s_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  uint32_t hex(std::string_view s, size_t i, size_t n) const {
    uint32_t v = 0;
    if (i + n > s.size()) fail("truncated escape in a string");
    for (size_t k = i; k < i + n; ++k) {
      const char c = s[k];
      const int d = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                             : -1;
      if (d < 0) fail("truncated escape in a string");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    return v;
  }

  // Python's unicode-escape codec, over text whose other characters were escaped first.
  std::string unescape(std::string_view s) const {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    std::string out;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '\\') {
        out.push_back(s[i]);
        continue;
      }
      const char c = s[++i];
      if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
        out.push_back(kTo[k]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        uint32_t v = 0;
        size_t n = 0;
        for (; n < 3 && i + n < s.size() && s[i + n] >= '0' && s[i + n] <= '7'; ++n)
          v = v * 8 + static_cast<uint32_t>(s[i + n] - '0');
        append_utf8(out, v);
        i += n - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const uint32_t v = hex(s, i + 1, n);
        if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) fail("the escape \\{}{:x} is no character", c, v);
        append_utf8(out, v);
        i += n;
      } else if (c == 'N') {
        fail("\\N{{…}} in a string is not supported: write the character");
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        size_t size = 0;  // Jinja escapes the character first, so that the backslash meets another backslash
        const char32_t p = pytext::code_point(s, i, size);
        out += p < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(p))
               : p < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(p))
                             : fmt::format("\\U{:08x}", static_cast<uint32_t>(p));
        i += size - 1;
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  void op(std::string& open) {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (std::string_view o : kLong)
      if (starts(o, at_)) {
        emit(TokenKind::kOperator, std::string(o));
        return advance(at_ + 2);
      }
    const char c = s_[at_];
    if (kShort.find(c) == std::string_view::npos) {
      size_t size = 0;
      pytext::code_point(s_, at_, size);
      fail("unexpected char '{}'", s_.substr(at_, size));
    }
    if (c == '{' || c == '(' || c == '[') open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    if (c == '}' || c == ')' || c == ']') {
      if (open.empty()) fail("unexpected '{}'", c);
      if (open.back() != c) fail("unexpected '{}', expected '{}'", c, open.back());
      open.pop_back();
    }
    emit(TokenKind::kOperator, std::string(1, c));
    advance(at_ + 1);
  }

  std::string s_;
  std::string name_;
  Style style_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view name, const Style& style) {
  return Lexer(source, name, style).run();
}

}  // namespace mxt::jinja
