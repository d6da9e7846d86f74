// A client's regular expression as grammar rules: literals, classes, groups, alternation, quantifiers, anchors at the
// ends. What needs memory or looks around is refused. Characters are written as JSON spells them inside a string.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr int kMaxNesting = 32;
constexpr int64_t kMaxRepeat = 256;

ByteSet named_class(char c) {
  ByteSet s;
  switch (c) {
    case 'd':
    case 'D':
      s = byte_range('0', '9');
      break;
    case 'w':
    case 'W':
      s = byte_range('0', '9') | byte_range('a', 'z') | byte_range('A', 'Z') | byte_range('_', '_');
      break;
    case 's':
    case 'S':
      s = byte_range(' ', ' ') | byte_range('\t', '\r');
      break;
    default:
      fail_input("\\{} is not supported", c);
  }
  if (c < 'a') s = byte_range(0, 127) & ~s;
  return s;
}

}  // namespace

// Reads the pattern once, left to right; each construct becomes a rule.
class PatternReader {
 public:
  using Rule = Grammar::Rule;
  struct Maker {
    Grammar& g;
    Rule any_char;  // one JSON-spelled character
    std::function<Rule(Rule, int64_t, int64_t)> repeat;
  };
  PatternReader(std::string_view text, Maker maker) : p_(text), m_(std::move(maker)) {}

  Rule read() {
    bool from_start = false, to_end = false;
    if (p_.starts_with('^')) from_start = true, ++at_;
    if (p_.ends_with('$') && !escaped(p_.size() - 1)) to_end = true, p_.remove_suffix(1);
    // With several alternatives the anchors would belong to the outer ones alone: a group says what is meant.
    const Rule body = alternatives(0);
    if (at_ < p_.size()) fail_input("\")\" without \"(\"");
    if ((from_start || to_end) && top_alternatives_)
      fail_input("an anchor beside a top-level \"|\" is not supported: put the alternatives into a group");
    Grammar::Sequence s;
    if (!from_start) s.push_back(Grammar::call(m_.repeat(m_.any_char, 0, -1)));
    s.push_back(Grammar::call(body));
    if (!to_end) s.push_back(Grammar::call(m_.repeat(m_.any_char, 0, -1)));
    return m_.g.of({s});
  }

 private:
  bool escaped(size_t i) const {
    size_t n = 0;
    while (i > n && p_[i - n - 1] == '\\') ++n;
    return n % 2 == 1;
  }
  bool more() const { return at_ < p_.size(); }
  char peek() const { return p_[at_]; }

  Rule alternatives(int depth) {
    if (depth > kMaxNesting) fail_input("nested too deeply");
    const Rule r = m_.g.add();
    m_.g.choice(r, sequence(depth));
    while (more() && peek() == '|') {
      ++at_;
      if (depth == 0) top_alternatives_ = true;
      m_.g.choice(r, sequence(depth));
    }
    return r;
  }
  Grammar::Sequence sequence(int depth) {
    Grammar::Sequence s;
    while (more() && peek() != '|' && peek() != ')') s.push_back(Grammar::call(quantified(depth)));
    return s;
  }
  Rule quantified(int depth) {
    Rule r = atom(depth);
    while (more()) {
      int64_t least = 0, most = -1;
      const char c = peek();
      if (c == '*')
        ++at_;
      else if (c == '+')
        ++at_, least = 1;
      else if (c == '?')
        ++at_, most = 1;
      else if (c == '{')
        std::tie(least, most) = counts();
      else
        break;
      if (more() && (peek() == '?' || peek() == '+')) {
        if (peek() == '+') fail_input("possessive quantifiers are not supported");
        ++at_;  // lazy: the same language
      }
      r = m_.repeat(r, least, most);
    }
    return r;
  }
  std::pair<int64_t, int64_t> counts() {
    ++at_;
    auto number = [&]() -> int64_t {
      int64_t v = -1;
      while (more() && peek() >= '0' && peek() <= '9') {
        v = std::max<int64_t>(v, 0) * 10 + (p_[at_++] - '0');
        if (v > kMaxRepeat) fail_input("more than {} repetitions", kMaxRepeat);
      }
      return v;
    };
    const int64_t least = number();
    if (least < 0) fail_input("\"{{\" without a number");
    int64_t most = least;
    if (more() && peek() == ',') ++at_, most = number();
    if (!more() || p_[at_++] != '}') fail_input("\"{{\" without \"}}\"");
    if (most >= 0 && most < least) fail_input("{{{},{}}} is empty", least, most);
    return {least, most};
  }
  // Bytes of one ASCII character as a JSON string spells it; control characters by their escapes.
  void spell(Rule r, const ByteSet& set) {
    ByteSet plain = set & byte_range(0x20, 0x7F);
    for (const char c : {'"', '\\'})
      if (set.test(static_cast<size_t>(c))) {
        plain.reset(static_cast<size_t>(c));
        add(r, {'\\', c});
      }
    static constexpr std::pair<char, char> kShort[] = {{'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    for (const auto& [c, e] : kShort)
      if (set.test(static_cast<size_t>(c))) add(r, {'\\', e});
    if (plain.any()) m_.g.choice(r, {m_.g.bytes(plain)});
  }
  void add(Rule r, std::initializer_list<char> bytes) {
    Grammar::Sequence s;
    m_.g.text(s, std::string(bytes));
    m_.g.choice(r, s);
  }
  Rule one_of(const ByteSet& ascii, bool others) {
    const Rule r = m_.g.add();
    spell(r, ascii);
    if (others) {
      auto b = [&](unsigned char x, unsigned char y) { return m_.g.bytes(byte_range(x, y)); };
      m_.g.choice(r, {b(0xC2, 0xDF), b(0x80, 0xBF)});
      m_.g.choice(r, {b(0xE1, 0xEC), b(0x80, 0xBF), b(0x80, 0xBF)});
      m_.g.choice(r, {b(0xF1, 0xF3), b(0x80, 0xBF), b(0x80, 0xBF), b(0x80, 0xBF)});
    }
    return r;
  }
  Rule atom(int depth) {
    const char c = p_[at_];
    if (c == '(') {
      ++at_;
      if (more() && peek() == '?') {
        if (p_.substr(at_).starts_with("?:"))
          at_ += 2;
        else
          fail_input("\"(?\" groups other than \"(?:\" are not supported");
      }
      const Rule r = alternatives(depth + 1);
      if (!more() || p_[at_++] != ')') fail_input("\"(\" without \")\"");
      return r;
    }
    if (c == '[') return char_class();
    if (c == '.') return ++at_, one_of(byte_range(0, 127) & ~byte_range('\n', '\n') & ~byte_range('\r', '\r'), true);
    if (c == '^' || c == '$') fail_input("anchors in the middle are not supported");
    if (c == '*' || c == '+' || c == '?' || c == '{') fail_input("\"{}\" has nothing to repeat", c);
    if (c == '\\') {
      if (at_ + 1 >= p_.size()) fail_input("ends in a \"\\\"");
      const char e = p_[at_ + 1];
      at_ += 2;
      if (std::string_view("dDwWsS").find(e) != std::string_view::npos) return one_of(named_class(e), e < 'a');
      return one_of(
          byte_range(static_cast<unsigned char>(plain_escape(e)), static_cast<unsigned char>(plain_escape(e))), false);
    }
    if (static_cast<unsigned char>(c) < 0x80)
      return ++at_, one_of(byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)), false);
    const size_t from = at_;
    next_code_point(p_, at_);
    Grammar::Sequence s;
    m_.g.text(s, p_.substr(from, at_ - from));
    return m_.g.of({s});
  }
  char plain_escape(char e) {
    switch (e) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      default:
        break;
    }
    if ((e >= '0' && e <= '9') || (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z') ||
        static_cast<unsigned char>(e) >= 0x80)
      fail_input("\\{} is not supported", e);
    return e;
  }
  Rule char_class() {
    ++at_;
    bool negated = false;
    if (more() && peek() == '^') negated = true, ++at_;
    ByteSet set;
    bool first = true;
    auto member = [&]() -> int {  // −1: a named class was added
      const char c = p_[at_++];
      if (static_cast<unsigned char>(c) >= 0x80) fail_input("classes hold ASCII characters only");
      if (c != '\\') return static_cast<unsigned char>(c);
      if (!more()) fail_input("ends in a \"\\\"");
      const char e = p_[at_++];
      if (std::string_view("dDwWsS").find(e) != std::string_view::npos) return set |= named_class(e), -1;
      return static_cast<unsigned char>(plain_escape(e));
    };
    while (true) {
      if (!more()) fail_input("\"[\" without \"]\"");
      if (peek() == ']' && !first) break;
      first = false;
      const int from = member();
      if (from >= 0 && at_ + 1 < p_.size() && peek() == '-' && p_[at_ + 1] != ']') {
        ++at_;
        const int to = member();
        if (to < from) fail_input("a range of a class is empty");
        set |= byte_range(static_cast<unsigned char>(from), static_cast<unsigned char>(to));
      } else if (from >= 0) {
        set.set(static_cast<size_t>(from));
      }
    }
    ++at_;
    if (negated) set = byte_range(0, 127) & ~set;
    return one_of(set, negated);
  }

  std::string_view p_;
  Maker m_;
  size_t at_ = 0;
  bool top_alternatives_ = false;
};

Grammar::Rule JsonGrammar::pattern(const std::string& regex) {
  if (regex.size() > 4096) fail_input("longer than 4096 bytes");
  if (!is_valid_utf8(regex)) fail_input("not UTF-8");
  return PatternReader(regex,
                       {g_, char_, [this](Rule r, int64_t least, int64_t most) { return repeat(r, least, most); }})
      .read();
}

}  // namespace mxt::serve
