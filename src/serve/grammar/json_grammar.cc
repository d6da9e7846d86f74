#include "serve/grammar/json_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxCells = 200'000;
constexpr int64_t kWrittenOut = 256;

ByteSet one(char c) { return byte_range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)); }
ByteSet of_text(std::string_view s) {
  ByteSet b;
  for (char c : s) b |= one(c);
  return b;
}

}  // namespace

JsonGrammar::JsonGrammar() {
  const Symbol digit = g_.bytes(byte_range('0', '9')), hex = g_.bytes(of_text("0123456789abcdefABCDEF"));
  auto b = [&](unsigned char first, unsigned char last) { return g_.bytes(byte_range(first, last)); };
  auto t = [&](std::string_view s) {
    Sequence q;
    g_.text(q, s);
    return q;
  };
  auto then = [](Sequence a, const Sequence& c) {
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  // White space between tokens, little: a model that may write it for ever does.
  const Rule indent = repeat(g_.of({t(" ")}), 0, 16);
  ws_ = g_.of({{}, t(" "), {g_.bytes(one('\n')), Grammar::call(indent)}});

  const Symbol continuation = b(0x80, 0xBF);
  const ByteSet plain = byte_range(0x20, 0x7F) & ~of_text("\"\\");
  wide_char_ = g_.of({{b(0xC2, 0xDF), continuation},
                      {b(0xE0, 0xE0), b(0xA0, 0xBF), continuation},
                      {b(0xE1, 0xEC), continuation, continuation},
                      {b(0xED, 0xED), b(0x80, 0x9F), continuation},
                      {b(0xEE, 0xEF), continuation, continuation},
                      {b(0xF0, 0xF0), b(0x90, 0xBF), continuation, continuation},
                      {b(0xF1, 0xF3), continuation, continuation, continuation},
                      {b(0xF4, 0xF4), b(0x80, 0x8F), continuation, continuation}});
  plain_char_ = g_.of({{g_.bytes(plain)}, {Grammar::call(wide_char_)}});
  text_char_ = g_.of({{g_.bytes(byte_range(0x20, 0x7F) | of_text("\t\n\r"))}, {Grammar::call(wide_char_)}});
  char_ = g_.of({{Grammar::call(plain_char_)},
                 {g_.bytes(one('\\')), g_.bytes(of_text("\"\\/bfnrt"))},
                 // No surrogates: half of a pair is no text.
                 {g_.bytes(one('\\')), g_.bytes(one('u')), g_.bytes(of_text("0123456789abcefABCEF")), hex, hex, hex},
                 {g_.bytes(one('\\')), g_.bytes(one('u')), g_.bytes(of_text("dD")), b('0', '7'), hex, hex}});
  const Rule chars = repeat(char_, 0, -1);
  string_ = g_.of({{g_.bytes(one('"')), Grammar::call(chars), g_.bytes(one('"'))}});
  const Rule digits = repeat(g_.of({{digit}}), 0, 15);
  const Rule natural = g_.of({t("0"), {b('1', '9'), Grammar::call(digits)}});
  integer_ = g_.of({{Grammar::call(natural)}, then(t("-"), {b('1', '9'), Grammar::call(digits)})});
  const Rule fraction = g_.of({{}, {g_.bytes(one('.')), digit, Grammar::call(digits)}});
  const Rule exponent = g_.of({{},
                               {g_.bytes(of_text("eE")), Grammar::call(g_.of({{}, t("+"), t("-")})), digit,
                                Grammar::call(g_.of({{}, {digit}}))}});
  const Rule sign = g_.of({{}, t("-")});
  number_ = g_.of({{Grammar::call(sign), Grammar::call(natural), Grammar::call(fraction), Grammar::call(exponent)}});
  boolean_ = g_.of({t("true"), t("false")});
  null_ = g_.of({t("null")});
  any_ = g_.add();
  const Rule pair = g_.of({{Grammar::call(string_), g_.bytes(one(':')), Grammar::call(ws_), Grammar::call(any_)}});
  const Rule pairs = list(pair, 0, -1), values = list(any_, 0, -1);
  Symbol brace = g_.bytes(one('{'));
  brace.distinct = Distinct::kKeys;
  object_ = g_.of({{brace, Grammar::call(ws_), Grammar::call(pairs), Grammar::call(ws_), g_.bytes(one('}'))}});
  array_ =
      g_.of({{g_.bytes(one('[')), Grammar::call(ws_), Grammar::call(values), Grammar::call(ws_), g_.bytes(one(']'))}});
  for (Rule r : {object_, array_, string_, number_, boolean_, null_}) g_.choice(any_, {Grammar::call(r)});
}

Grammar JsonGrammar::take(Rule root) {
  g_.root = root;
  g_.prune();
  return std::move(g_);
}

JsonGrammar::Rule JsonGrammar::any_object() { return object_; }

void JsonGrammar::spend(size_t cells, const std::string& at) {
  if (g_.size() + cells > kMaxCells) fail_input("{}: the schema is too large", at);
}

std::string JsonGrammar::spelled(const OrderedJson& j) { return json_text(j); }

JsonGrammar::Rule JsonGrammar::any_of(const std::vector<Rule>& rules) {
  const Rule r = g_.add();
  for (Rule x : rules) g_.choice(r, {Grammar::call(x)});
  return r;
}

JsonGrammar::Rule JsonGrammar::literal(std::string_view text) {
  spend(text.size(), "schema");
  Sequence s;
  g_.text(s, text);
  return g_.of({s});
}

// Few are written out. Many are halved: 2n of something are n of it and n of it, and up to n are fewer than half of
// that or half of it and up to the rest; what is wanted twice is made once, so a count of any size costs little.
JsonGrammar::Rule JsonGrammar::exactly(Rule element, int64_t n) {
  if (n <= kWrittenOut) {
    Sequence all(static_cast<size_t>(n), Grammar::call(element));
    spend(all.size(), "schema");
    return g_.of({all});
  }
  const std::tuple key(element, n, true);
  if (const auto it = counted_.find(key); it != counted_.end()) return it->second;
  spend(4, "schema");
  const Symbol half = Grammar::call(exactly(element, n / 2));
  return counted_[key] = n % 2 == 0 ? g_.of({{half, half}}) : g_.of({{Grammar::call(element), half, half}});
}

JsonGrammar::Rule JsonGrammar::up_to(Rule element, int64_t n) {
  if (n <= kWrittenOut) {
    spend(static_cast<size_t>(3 * n), "schema");
    Rule rest = g_.of({{}});
    for (int64_t i = 0; i < n; ++i) rest = g_.of({{}, {Grammar::call(element), Grammar::call(rest)}});
    return rest;
  }
  const std::tuple key(element, n, false);
  if (const auto it = counted_.find(key); it != counted_.end()) return it->second;
  spend(4, "schema");
  const int64_t half = n / 2;
  return counted_[key] = g_.of({{Grammar::call(up_to(element, half - 1))},
                                {Grammar::call(exactly(element, half)), Grammar::call(up_to(element, n - half))}});
}

JsonGrammar::Rule JsonGrammar::repeat(Rule element, int64_t least, int64_t most) {
  Rule rest;
  if (most < 0) {
    rest = g_.add();
    g_.choice(rest, {});
    g_.choice(rest, {Grammar::call(element), Grammar::call(rest)});
  } else {
    rest = up_to(element, most - least);
  }
  return least == 0 ? rest : g_.of({{Grammar::call(exactly(element, least)), Grammar::call(rest)}});
}

JsonGrammar::Rule JsonGrammar::list(Rule element, int64_t least, int64_t most) {
  const Rule next = g_.of({{g_.bytes(one(',')), Grammar::call(ws_), Grammar::call(element)}});
  if (most == 0) return g_.of({{}});
  const Rule rest = repeat(next, std::max<int64_t>(least - 1, 0), most < 0 ? -1 : most - 1);
  const Rule some = g_.of({{Grammar::call(element), Grammar::call(rest)}});
  return least == 0 ? g_.of({{}, {Grammar::call(some)}}) : some;
}

JsonGrammar::Rule JsonGrammar::after_thinking(Rule body, bool opened) {
  Sequence think;
  if (!opened) g_.text(think, "<think>");
  think.push_back(Grammar::call(until("</think>")));
  const Rule newlines = repeat(g_.of({{g_.bytes(one('\n'))}}), 0, 2);
  think.push_back(Grammar::call(newlines));
  think.push_back(Grammar::call(body));
  return opened ? g_.of({think}) : g_.of({think, {Grammar::call(body)}});
}

JsonGrammar::Rule JsonGrammar::tool_calls(const OrderedJson& tools, const std::string& only, ToolStyle style,
                                          bool single) {
  const Rule call = g_.add();
  for (const auto& tool : tools) {
    const auto& f = tool["function"];
    const std::string name = f["name"].get<std::string>();
    if (!only.empty() && name != only) continue;
    const OrderedJson empty = {
        {"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
    const OrderedJson& parameters = f.contains("parameters") && !f["parameters"].is_null() ? f["parameters"] : empty;
    begin(parameters);
    Sequence s;
    const bool coder = style == ToolStyle::kQwenCoder;
    const Within within(*this, coder ? Form::kArguments : Form::kJson);
    g_.text(s, coder ? "<tool_call>\n<function=" + name + ">\n"
                     : "<tool_call>\n{\"name\": " + spelled(OrderedJson(name)) + ", \"arguments\": ");
    // Arguments are an object, whatever else the parameters leave open.
    const bool said = parameters.is_object() && parameters.value("type", OrderedJson()) == OrderedJson("object");
    s.push_back(Grammar::call(
        said ? value(parameters, "#", 0)
             : merged(copied(both(flat(copied(parameters, "#"), "#"), {{"type", "object"}}, "#"), "#"), "#", 0)));
    g_.text(s, coder ? "</function>\n</tool_call>" : "}\n</tool_call>");
    g_.choice(call, s);
  }
  if (single) return call;
  const Rule more = repeat(g_.of({{g_.bytes(one('\n')), Grammar::call(call)}}), 0, -1);
  return g_.of({{Grammar::call(call), Grammar::call(more)}});
}

}  // namespace mxt::serve
