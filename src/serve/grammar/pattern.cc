// A client's regular expression as grammar rules: literals, classes, groups, alternation, quantifiers, anchors at the
// ends, and what looks ahead at the beginning. What needs memory or looks around elsewhere is refused. Characters are
// written as JSON spells them inside a string, or as they stand (text_form.cc).
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "serve/grammar/characters.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

constexpr int kMaxNesting = 32;
constexpr int64_t kMaxRepeat = 10'000;
constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr size_t kMaxAheads = 8;

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

struct PatternMaker {
  Grammar& g;
  Grammar::Rule any_char;  // one character, as it is spelled
  bool json;               // inside a JSON string; else as it stands
  std::function<Grammar::Rule(Grammar::Rule, int64_t, int64_t)> repeat;
};

// What a pattern demands ahead of its beginning.
struct Ahead {
  std::string regex;
  bool holds;
};

// Reads one alternative of the pattern, left to right; each construct becomes a rule.
class PatternReader {
 public:
  using Rule = Grammar::Rule;
  PatternReader(std::string_view text, PatternMaker maker, bool any_case = false)
      : p_(text), m_(std::move(maker)), any_case_(any_case) {}

  // What a string looks like between its quotation marks.
  Rule read(bool from_start) {
    bool to_end = false;
    if (p_.starts_with('^')) from_start = true, ++at_;
    if (p_.ends_with('$') && !escaped(p_.size() - 1)) to_end = true, p_.remove_suffix(1);
    const Rule body = alternatives(0);
    if (at_ < p_.size()) fail_input("\")\" without \"(\"");
    Grammar::Sequence s;
    if (!from_start) s.push_back(Grammar::call(m_.repeat(m_.any_char, 0, -1)));
    s.push_back(Grammar::call(body));
    if (!to_end) s.push_back(Grammar::call(m_.repeat(m_.any_char, 0, -1)));
    return m_.g.of({s});
  }
  // Any one character, written in one way.
  Rule one() { return one_of(byte_range(0, 127), true); }

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
    if (!m_.json) {
      const ByteSet text = set & (byte_range(0x20, 0x7F) | byte_range('\t', '\n') | byte_range('\r', '\r'));
      if (text.any()) m_.g.choice(r, {m_.g.bytes(text)});
      return;
    }
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
  Rule one_of(ByteSet ascii, bool others) {
    const Rule r = m_.g.add();
    if (any_case_)
      for (char c = 'a'; c <= 'z'; ++c) {
        const auto small = static_cast<size_t>(c), large = small - 32;
        if (ascii.test(small) || ascii.test(large)) ascii.set(small), ascii.set(large);
      }
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
      if (more() && peek() == '?') group_head();
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
      if (const auto code = code_of(e)) return of_points({{*code, *code}});
      if (e == 'p' || e == 'P') return of_points(category(e));
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
  // Behind "(": what follows "?" is a name, or says that the group has none.
  void group_head() {
    const std::string_view head = p_.substr(at_);
    size_t name = 0;
    if (head.starts_with("?P<")) name = 3;
    if (head.starts_with("?<") && !head.starts_with("?<=") && !head.starts_with("?<!")) name = 2;
    if (head.starts_with("?:")) {
      at_ += 2;
    } else if (const size_t end = head.find('>'); name > 0 && end != std::string_view::npos) {
      at_ += end + 1;
    } else {
      fail_input("a group that begins with \"({}\" is not supported here", head.substr(0, 3));
    }
  }
  // \xHH, \uHHHH, \u{H…}, behind the letter.
  std::optional<uint32_t> code_of(char e) {
    if (e != 'x' && e != 'u') return std::nullopt;
    const bool braces = more() && peek() == '{';
    const size_t from = at_ + braces, end = braces ? p_.find('}', from) : from + (e == 'x' ? 2 : 4);
    const std::string_view hex = end <= p_.size() ? p_.substr(from, end - from) : std::string_view();
    if (hex.empty() || hex.size() > 6 || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      fail_input("\\{} without its hexadecimal digits", e);
    const auto code = static_cast<uint32_t>(std::stoul(std::string(hex), nullptr, 16));
    if (code > kLastCodePoint || (code >= 0xD800 && code <= 0xDFFF)) fail_input("\\{}{} is no character", e, hex);
    at_ = end + braces;
    return code;
  }
  void add_wide(Rule r, const pytext::CodePoints& points) {
    if (!points.empty()) m_.g.choice(r, {Grammar::call(characters(m_.g, points))});
  }
  // \p{…}, \P{…} and \pL, behind the letter: characters of a general category, or all others.
  pytext::CodePoints category(char e) {
    const bool braces = more() && peek() == '{';
    const size_t from = at_ + braces, end = braces ? p_.find('}', from) : std::min(from + 1, p_.size());
    const std::string_view name = end <= p_.size() ? p_.substr(from, end - from) : std::string_view();
    pytext::CodePoints points = pytext::of_category(name);
    if (points.empty())
      fail_input("\\{}{{{}}} is not supported: general categories are (L, Lu, Ll, M, N, Nd, P, S, Sc, Z, Zs, …)", e,
                 name);
    at_ = end + braces;
    return e == 'p' ? points : all_but(std::move(points), 0);
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
    pytext::CodePoints wide;  // beyond ASCII
    bool first = true, every_other = false;
    auto member = [&]() -> std::optional<uint32_t> {  // nothing: a named class was added
      if (static_cast<unsigned char>(p_[at_]) >= 0x80) return next_code_point(p_, at_);
      const char c = p_[at_++];
      if (c != '\\') return static_cast<unsigned char>(c);
      if (!more()) fail_input("ends in a \"\\\"");
      const char e = p_[at_++];
      if (std::string_view("dDwWsS").find(e) != std::string_view::npos) {
        set |= named_class(e);
        every_other = every_other || e < 'a';
        return std::nullopt;
      }
      if (const auto code = code_of(e)) return code;
      if (e == 'p' || e == 'P') {
        split(category(e), set, wide);
        return std::nullopt;
      }
      return static_cast<unsigned char>(plain_escape(e));
    };
    while (true) {
      if (!more()) fail_input("\"[\" without \"]\"");
      if (peek() == ']' && !first) break;
      first = false;
      const auto from = member();
      if (!from) continue;
      uint32_t to = *from;
      if (at_ + 1 < p_.size() && peek() == '-' && p_[at_ + 1] != ']') {
        ++at_;
        const auto end = member();
        if (!end || *end < *from) fail_input("a range of a class is empty");
        to = *end;
      }
      split({{*from, to}}, set, wide);
    }
    ++at_;
    if (!negated && every_other) wide = {{0x80, kLastCodePoint}};
    if (negated) {
      set = byte_range(0, 127) & ~set;
      wide = every_other ? pytext::CodePoints() : all_but(std::move(wide), 0x80);
    }
    const Rule r = one_of(set, false);
    add_wide(r, wide);
    return r;
  }
  Rule of_points(const pytext::CodePoints& points) {
    ByteSet set;
    pytext::CodePoints wide;
    split(points, set, wide);
    const Rule r = one_of(set, false);
    add_wide(r, wide);
    return r;
  }
  static void split(const pytext::CodePoints& points, ByteSet& ascii, pytext::CodePoints& wide) {
    for (const auto& [low, high] : points) {
      if (low < 0x80)
        ascii |=
            byte_range(static_cast<unsigned char>(low), static_cast<unsigned char>(std::min<uint32_t>(high, 0x7F)));
      if (high >= 0x80) wide.emplace_back(std::max<uint32_t>(low, 0x80), high);
    }
  }
  static pytext::CodePoints all_but(pytext::CodePoints ranges, uint32_t next) {
    std::sort(ranges.begin(), ranges.end());
    pytext::CodePoints out;
    for (const auto& [low, high] : ranges) {
      if (low > next) out.emplace_back(next, low - 1);
      next = std::max(next, high + 1);
    }
    if (next <= kLastCodePoint) out.emplace_back(next, kLastCodePoint);
    return out;
  }

  std::string_view p_;
  PatternMaker m_;
  bool any_case_;
  size_t at_ = 0;
};

namespace {

// Where the group that begins at `from` ends: behind its ")".
size_t end_of_group(std::string_view p, size_t from) {
  int depth = 0;
  bool in_class = false;
  for (size_t i = from; i < p.size(); ++i) {
    if (p[i] == '\\')
      ++i;
    else if (in_class)
      in_class = p[i] != ']';
    else if (p[i] == '[')
      in_class = true;
    else if (p[i] == '(')
      ++depth;
    else if (p[i] == ')' && --depth == 0)
      return i + 1;
  }
  fail_input("\"(\" without \")\"");
}

// At the "|" that stand in no group: anchors and what looks ahead belong to one alternative.
std::vector<std::string> alternatives_of(std::string_view p) {
  std::vector<std::string> out{""};
  bool in_class = false;
  for (size_t i = 0; i < p.size(); ++i) {
    size_t n = 1;
    if (p[i] == '\\')
      n = 2;
    else if (p[i] == '(' && !in_class)
      n = end_of_group(p, i) - i;
    else if (p[i] == '[')
      in_class = true;
    else if (p[i] == ']')
      in_class = false;
    if (p[i] == '|' && !in_class)
      out.emplace_back();
    else
      out.back() += p.substr(i, n);
    i += n - 1;
  }
  return out;
}

// Takes (?=…) and (?!…) off the beginning, where they say something of the whole text. Without "^" they might hold
// further on too; held at the beginning is one way to hold.
std::vector<Ahead> take_aheads(std::string& p) {
  const bool anchored = p.starts_with('^');
  std::vector<Ahead> out;
  std::string_view rest = std::string_view(p).substr(anchored);
  while (rest.starts_with("(?=") || rest.starts_with("(?!")) {
    const size_t end = end_of_group(rest, 0);
    out.push_back({std::string(rest.substr(3, end - 4)), rest[2] == '='});
    rest.remove_prefix(end);
  }
  if (!out.empty()) p = "^" + std::string(rest);
  return out;
}

}  // namespace

JsonGrammar::Rule JsonGrammar::pattern(const std::string& regex) {
  if (regex.size() > 4096) fail_input("longer than 4096 bytes");
  if (!is_valid_utf8(regex)) fail_input("not UTF-8");
  std::string whole = regex;
  const bool any_case = whole.starts_with("(?i)");
  if (any_case) whole.erase(0, 4);
  const Symbol quote = g_.bytes(byte_range('"', '"'));
  const bool json = form_ != Form::kText;
  PatternMaker maker{g_, json ? char_ : text_char_, json,
                     [this](Rule r, int64_t least, int64_t most) { return repeat(r, least, most); }};
  auto quoted = [&](Rule inside) { return json ? g_.of({{quote, Grammar::call(inside), quote}}) : inside; };
  auto holding = [&](Rule r, const std::vector<Ahead>& aheads) {
    for (const Ahead& a : aheads) {
      std::vector<Rule> any;
      for (const std::string& part : alternatives_of(a.regex))
        any.push_back(PatternReader(part, maker, any_case).read(true));
      r = intersection(r, quoted(any_of(any)), "what looks ahead", !a.holds);
    }
    return r;
  };
  std::vector<Rule> choices;
  size_t held = 0;
  for (std::string one : alternatives_of(whole)) {
    if (one.starts_with("\\A")) one.replace(0, 2, "^");
    if (one.ends_with("\\Z") || one.ends_with("\\z")) one.replace(one.size() - 2, 2, "$");
    const std::vector<Ahead> aheads = take_aheads(one);
    if ((held += aheads.size()) > kMaxAheads) fail_input("looks ahead more than {} times", kMaxAheads);
    // Texts are compared as they are written: each in one way alone.
    if (!aheads.empty()) maker.any_char = PatternReader("", maker).one();
    const Rule r = quoted(PatternReader(one, maker, any_case).read(false));
    try {
      choices.push_back(holding(r, aheads));
    } catch (const NothingLeft&) {  // another alternative may have texts
    }
  }
  if (choices.empty()) throw NothingLeft("no text is as all of it demands");
  return choices.size() == 1 ? choices[0] : any_of(choices);
}

}  // namespace mxt::serve
