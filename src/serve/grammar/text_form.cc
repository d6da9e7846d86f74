// Qwen-coder's form of a call: arguments between tags, a text as it stands and without quotation marks. What a schema
// says of texts holds for them all the same; its objects are held by object(), as everywhere.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"
#include "serve/output/schema_types.h"

namespace mxt::serve {
namespace {

constexpr std::string_view kEnd = "</parameter>";  // no argument has it in it: there it would end

ByteSet text_bytes() { return byte_range(0x20, 0xFF) | byte_range('\t', '\n') | byte_range('\r', '\r'); }

// Of a text that ends in so much of `tag`, and of each next byte: how much of the tag it ends in then (Knuth, Morris,
// Pratt).
std::vector<std::map<size_t, ByteSet>> steps_of(std::string_view tag, const ByteSet& bytes) {
  std::vector<std::map<size_t, ByteSet>> out(tag.size());
  for (size_t i = 0; i < tag.size(); ++i)
    for (size_t c = 0; c < 256; ++c) {
      if (!bytes.test(c)) continue;
      const std::string seen = std::string(tag.substr(0, i)) + static_cast<char>(c);
      size_t n = seen.size();
      while (n > 0 && seen.compare(seen.size() - n, n, tag, 0, n) != 0) --n;
      out[i][n].set(c);
    }
  return out;
}

}  // namespace

// Text up to the tag and the tag.
JsonGrammar::Rule JsonGrammar::until(std::string_view tag) {
  const auto steps = steps_of(tag, ~ByteSet());
  std::vector<Rule> at;
  for (size_t i = 0; i < tag.size(); ++i) at.push_back(g_.add());
  for (size_t i = 0; i < tag.size(); ++i)
    for (const auto& [n, set] : steps[i]) {
      if (n == tag.size())
        g_.choice(at[i], {g_.bytes(set)});
      else
        g_.choice(at[i], {g_.bytes(set), Grammar::call(at[n])});
    }
  return at[0];
}

// Any text without the tag.
JsonGrammar::Rule JsonGrammar::free_text() {
  if (free_text_ >= 0) return free_text_;
  const auto steps = steps_of(kEnd, text_bytes());
  std::vector<Rule> at;
  for (size_t i = 0; i < kEnd.size(); ++i) at.push_back(g_.of({{}}));
  for (size_t i = 0; i < kEnd.size(); ++i)
    for (const auto& [n, set] : steps[i])
      if (n < kEnd.size()) g_.choice(at[i], {g_.bytes(set), Grammar::call(at[n])});
  return free_text_ = at[0];
}

// Texts of so many characters (most −1: any number), in pieces that cannot make up the tag: single characters, and "<"
// with what follows it. Few are counted exactly; of many the longest that hold a "<" are left out.
JsonGrammar::Rule JsonGrammar::counted_text(int64_t least, int64_t most, const std::string& at) {
  constexpr int64_t kExact = 32;
  if (std::max(least, most) <= kExact)
    return of_length(intersection(repeat(text_char_, 0, -1), free_text(), at), least, most, at);
  const ByteSet ascii = text_bytes() & byte_range(0, 0x7F) & ~byte_range('<', '<');
  const Rule plain = g_.of({{g_.bytes(ascii)}, {Grammar::call(wide_char_)}}), piece = g_.of({{Grammar::call(plain)}});
  constexpr std::string_view kBegins[] = {"<", "<<", "</", "</p", "</pa"};
  constexpr char kNot[] = {'/', '/', 'p', 'a', 'r'};  // "</par" is in none
  constexpr int64_t kLongest = 5;                     // characters of a piece
  for (size_t i = 0; i < std::size(kBegins); ++i) {
    const auto next = static_cast<unsigned char>(kNot[i]);
    for (const Symbol last : {g_.bytes(ascii & ~byte_range(next, next)), Grammar::call(wide_char_)}) {
      Sequence s;
      g_.text(s, kBegins[i]);
      s.push_back(last);
      g_.choice(piece, s);
    }
  }
  if (most < 0) return repeat(piece, least, -1);
  if (most / kLongest < least) return repeat(plain, least, most);
  return any_of({repeat(plain, least, most), repeat(piece, least, most / kLongest)});
}

// Texts that are read as another value than a text, where the schema allows one of these types: 12, null, [1].
JsonGrammar::Rule JsonGrammar::other_values(JsonTypes types) {
  if (const auto it = other_values_.find(types); it != other_values_.end()) return it->second;
  const auto space = [&] { return byte_range(' ', ' ') | byte_range('\t', '\n') | byte_range('\r', '\r'); };
  const Rule some_space = repeat(g_.of({{g_.bytes(space())}}), 0, -1), r = g_.add();
  const auto add = [&](Sequence s, bool ends) {
    s.insert(s.begin(), Grammar::call(some_space));
    s.push_back(Grammar::call(ends ? some_space : free_text()));
    g_.choice(r, s);
  };
  const auto word = [&](std::string_view w) {
    Sequence s;
    g_.text(s, w);
    add(s, true);
  };
  if (types & kNullType) word("null"), word("None");
  if (types & kBooleanType)
    for (const char* w : {"true", "false", "True", "False"}) word(w);
  if (types & kObjectType) add({g_.bytes(byte_range('{', '{'))}, false);
  if (types & kArrayType) add({g_.bytes(byte_range('[', '['))}, false);
  if (types & (kIntegerType | kNumberType)) {
    const Rule digit = g_.of({{g_.bytes(byte_range('0', '9'))}}), more = repeat(digit, 0, -1);
    const Rule sign = g_.of({{}, {g_.bytes(byte_range('-', '-'))}});
    Sequence s{Grammar::call(sign), Grammar::call(g_.of({{g_.bytes(byte_range('0', '0'))},
                                                         {g_.bytes(byte_range('1', '9')), Grammar::call(more)}}))};
    if (types & kNumberType) {
      const Rule plus = g_.of({{}, {g_.bytes(byte_range('-', '-') | byte_range('+', '+'))}});
      s.push_back(
          Grammar::call(g_.of({{}, {g_.bytes(byte_range('.', '.')), Grammar::call(digit), Grammar::call(more)}})));
      s.push_back(Grammar::call(g_.of({{},
                                       {g_.bytes(byte_range('e', 'e') | byte_range('E', 'E')), Grammar::call(plus),
                                        Grammar::call(digit), Grammar::call(more)}})));
    }
    add(s, true);
  }
  return other_values_[types] = r;
}

// Any text that is read as one.
JsonGrammar::Rule JsonGrammar::any_text(const std::string& at) {
  if (others_ < 0) return free_text();
  const auto [it, fresh] = any_text_.emplace(others_, -1);
  if (fresh) it->second = intersection(free_text(), others_, at, true);
  return it->second;
}

// A listed text as an argument; nothing where it would be read as something else, or end before its end.
std::optional<JsonGrammar::Rule> JsonGrammar::listed_text(const std::string& text) {
  if (text.find(kEnd) != std::string::npos) return std::nullopt;
  if (others_ >= 0) {
    auto& others = other_machines_[others_];
    if (!others) others = std::make_shared<Automaton>(machine(others_));
    if (others->matches(text)) return std::nullopt;
  }
  return literal(text);
}

// What the rest of a schema's string leaves, as an argument.
JsonGrammar::Rule JsonGrammar::as_text(Rule r, const std::string& at) {
  r = intersection(r, free_text(), at);
  return others_ < 0 ? r : intersection(r, others_, at, true);
}

// One argument; `written` is its schema.
JsonGrammar::Rule JsonGrammar::argument(const std::string& name, const OrderedJson& written, const std::string& at,
                                        int depth) {
  if (name.find_first_of(">\n") != std::string::npos || name.empty())
    fail_input("{}: no parameter can have the name \"{}\" in this model's form of calls", at, name);
  const JsonTypes types = types_of_parameter(*document_, name);
  const bool text = (types & kStringType) != 0;
  const Within within(*this, text ? Form::kText : Form::kJson,
                      text && types != kStringType ? other_values(static_cast<JsonTypes>(types & ~kStringType)) : -1);
  Sequence s;
  spend(2 * name.size(), at);
  g_.text(s, "<parameter=" + name + ">\n");
  s.push_back(Grammar::call(value(written, at, depth)));
  g_.text(s, "\n</parameter>\n");
  return g_.of({s});
}

// An argument of any name, where a schema declares none.
JsonGrammar::Rule JsonGrammar::any_argument() {
  const Rule letter =
      g_.of({{g_.bytes(byte_range('a', 'z') | byte_range('A', 'Z') | byte_range('0', '9') | byte_range('_', '_'))}});
  Sequence s;
  g_.text(s, "<parameter=");
  s.push_back(Grammar::call(repeat(letter, 1, 64)));
  g_.text(s, ">\n");
  s.push_back(Grammar::call(free_text()));
  g_.text(s, "\n</parameter>\n");
  return g_.of({s});
}

}  // namespace mxt::serve
