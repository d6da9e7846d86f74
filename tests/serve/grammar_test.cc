#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

std::shared_ptr<const TokenBytes> bytes() {
  std::vector<std::string> b;
  for (int i = 0; i < 256; ++i) b.emplace_back(1, static_cast<char>(i));
  for (const char* s : {"{\"", "\": ", "\"}", "true", "false", "null", "12", "\", \"", "name", "<tool_call>", ""}) b.emplace_back(s);
  return std::make_shared<TokenBytes>(b);
}

Automaton of(const std::string& schema) {
  JsonGrammar g;
  const OrderedJson j = OrderedJson::parse(schema);
  const auto root = g.schema(j);
  return {g.take(root), bytes()};
}

void yes(const std::string& schema, const std::vector<std::string>& texts) {
  Automaton a = of(schema);
  for (const auto& t : texts) EXPECT_TRUE(a.matches(t)) << schema << "  " << t;
}
void no(const std::string& schema, const std::vector<std::string>& texts) {
  Automaton a = of(schema);
  for (const auto& t : texts) EXPECT_FALSE(a.matches(t)) << schema << "  " << t;
}

TEST(JsonGrammar, Types) {
  yes(R"({"type":"integer"})", {"0", "-7", "123"});
  no(R"({"type":"integer"})", {"01", "-0", "1.5", "", "+1", "1 "});
  yes(R"({"type":"number"})", {"0", "-0.5", "1e-9", "12.25E+3"});
  no(R"({"type":"number"})", {".5", "1.", "1e"});
  yes(R"({"type":"string"})", {R"("")", R"("aé😀\n\u00e9")"});
  no(R"({"type":"string"})", {"\"a", "\"\n\"", R"("\x")", R"("\ud800")", "\"\xff\""});
  yes(R"({"type":["null","boolean"]})", {"null", "true", "false"});
  yes(R"({})", {R"({"a": [1, {"b": null}]})", "[]", "3"});
  yes("true", {"1"});
}

TEST(JsonGrammar, Objects) {
  const std::string s = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},"required":["b"],"additionalProperties":false})";
  yes(s, {R"({"b": "x"})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"x","c":true})", R"({"b":"x","c":false})"});
  no(s, {"{}", R"({"a": 1})", R"({"b": "x", "a": 1})", R"({"b": "x",})", R"({"b": 1})", R"({"b": "x", "d": 1})", R"({, "b": "x"})"});
  yes(R"({"type":"object","additionalProperties":{"type":"integer"}})", {"{}", R"({"x": 1, "y": 2})"});
  no(R"({"type":"object","additionalProperties":{"type":"integer"}})", {R"({"x": "1"})"});
  yes(R"({"type":"object"})", {R"({"any": {"thing": []}})"});
  yes(R"({"properties":{"quo\"te":{"const":{"k":[1,"é"]}}}})", {R"({"quo\"te": {"k":[1,"é"]}})", "{}"});
}

TEST(JsonGrammar, ArraysStringsEnums) {
  const std::string s = R"({"type":"array","items":{"enum":["x",2,null]},"minItems":1,"maxItems":3})";
  yes(s, {R"(["x"])", R"([2, null, "x"])"});
  no(s, {"[]", "[2,2,2,2]", "[3]", "[2,]"});
  yes(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})", {R"([1, "a"])"});
  yes(R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("éé\n")"});
  no(R"({"type":"string","minLength":2,"maxLength":3})", {R"("a")", R"("abcd")"});
  yes(R"({"anyOf":[{"type":"integer"},{"const":"no"}]})", {"5", "\"no\""});
  yes(R"({"type":"string","format":"date"})", {R"("2024-02-29")"});
  no(R"({"type":"string","format":"date"})", {R"("2024-13-01")", R"("24-1-1")"});
}

TEST(JsonGrammar, IntegerRanges) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{{0, 0}, {3, 17}, {-25, 104}, {-1000, -7}, {99, 1001}, {0, 255}}) {
    Automaton a = of(nlohmann::json{{"type", "integer"}, {"minimum", low}, {"maximum", high}}.dump());
    for (int x = -1200; x <= 1200; ++x) EXPECT_EQ(a.matches(std::to_string(x)), x >= low && x <= high) << low << " " << high << " " << x;
  }
  yes(R"({"type":"integer","exclusiveMinimum":0})", {"1", "99999"});
  no(R"({"type":"integer","exclusiveMinimum":0})", {"0", "-3"});
}

TEST(JsonGrammar, ReferencesMayRecur) {
  const std::string tree = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})";
  yes(tree, {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"});
  no(tree, {R"({"v": 1})"});
  // Nothing but itself: allows nothing, and must not hang.
  EXPECT_EQ(of(R"({"$ref":"#"})").start(), Automaton::kDead);
}

TEST(JsonGrammar, Patterns) {
  auto s = [](const std::string& p) { return nlohmann::json{{"type", "string"}, {"pattern", p}}.dump(); };
  yes(s("^[a-c]+(\\d{2}|x)?$"), {R"("a")", R"("abc42")", R"("cx")"});
  no(s("^[a-c]+(\\d{2}|x)?$"), {R"("")", R"("d")", R"("a4")"});
  yes(s("b"), {R"("abc")", R"("b")"});
  no(s("b"), {R"("ac")"});
  yes(s("^\\w+@\\w+\\.com$"), {R"("me@x.com")"});
  yes(s("^[^\"]*$"), {R"("a\\b")"});
  yes(s("^é{2}.$"), {R"("éé\"")"});
  // Quadratic and exponential for backtracking machines.
  Automaton a = of(s("^(a+)+$"));
  EXPECT_TRUE(a.matches("\"" + std::string(5000, 'a') + "\""));
  EXPECT_FALSE(a.matches("\"" + std::string(5000, 'a') + "b\""));
}

TEST(JsonGrammar, BadSchemasAreRefused) {
  for (const char* s : {R"({"type":"strng"})", R"({"type":5})", R"({"type":[]})", R"(false)", R"(5)", R"({"enum":[]})", R"({"properties":3})", R"({"required":["x"],"properties":{}})",
                        R"({"$ref":"http://x/y"})", R"({"$ref":"#/nowhere"})", R"({"$ref":"#nonsense"})", R"({"not":{}})", R"({"type":"array","minItems":-1})", R"({"type":"array","minItems":3,"maxItems":1})",
                        R"({"type":"string","maxLength":1000000000})", R"({"type":"string","pattern":"("})", R"x({"type":"string","pattern":"(?=a)"})x", R"({"type":"string","pattern":"\\1"})",
                        R"({"type":"string","pattern":"a{5000}"})", R"({"type":"string","pattern":"[z-a]"})", R"({"type":"string","pattern":"*"})", R"({"type":"integer","minimum":3,"maximum":1})",
                        R"({"type":"integer","minimum":1e300})", R"({"type":"number","minimum":1})", R"({"anyOf":{}})", R"({"allOf":[1]})"})
    EXPECT_THROW(of(s), Error) << s;
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_THROW(of(deep), Error);
  std::string wide = R"({"type":"array","minItems":4000,"items":{"type":"array","minItems":4000,"items":{"type":"array","minItems":4000}}})";
  Automaton a = of(wide);  // lazily: the states are not made
  EXPECT_FALSE(a.matches("[]"));
}

TEST(Automaton, TokensAreThoseThatCanGoOn) {
  Automaton a = of(R"({"type":"object","properties":{"name":{"enum":[true,12]}},"required":["name"],"additionalProperties":false})");
  auto allowed = [&](const std::string& text, int32_t id) {
    Automaton::State s = a.start();
    for (char c : text) s = a.next(s, static_cast<unsigned char>(c));
    return ((a.tokens(s)[static_cast<size_t>(id) / 64] >> (id % 64)) & 1) != 0;
  };
  EXPECT_TRUE(allowed("", '{'));
  EXPECT_TRUE(allowed("", 256));       // {"
  EXPECT_FALSE(allowed("", 'a'));
  EXPECT_TRUE(allowed("{\"", 264));    // name
  EXPECT_FALSE(allowed("{\"", 263));
  EXPECT_TRUE(allowed("{\"name", 257));
  EXPECT_TRUE(allowed("{\"name\": ", 259));
  EXPECT_FALSE(allowed("{\"name\": ", 260));
  EXPECT_TRUE(allowed("{\"name\": ", 262));
  EXPECT_FALSE(allowed("{\"name\": true", 258));
  EXPECT_TRUE(allowed("{\"name\": true", '}'));
  EXPECT_FALSE(allowed("{\"name\": true}", '}'));
  EXPECT_FALSE(allowed("", 266));      // empty: never
}

TEST(Automaton, NestingIsBounded) {
  Automaton a = of("{}");
  EXPECT_TRUE(a.matches(std::string(50, '[') + std::string(50, ']')));
  EXPECT_FALSE(a.matches(std::string(5000, '[') + std::string(5000, ']')));
}

TEST(ToolGrammar, HermesAndQwenCoder) {
  const OrderedJson tools = OrderedJson::parse(R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"s":{"type":"string"}},"required":["a"]}}},
    {"type":"function","function":{"name":"now"}}])");
  auto machine = [&](const std::string& only, ToolStyle style, bool single) {
    JsonGrammar g;
    const auto root = g.tool_calls(tools, only, style, single);
    return Automaton(g.take(root), bytes());
  };
  const std::string add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 5}}\n</tool_call>", now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  Automaton any = machine("", ToolStyle::kHermes, false), one = machine("now", ToolStyle::kHermes, true);
  EXPECT_TRUE(any.matches(add) && any.matches(now) && any.matches(add + "\n" + now));
  EXPECT_FALSE(any.matches("hello") || any.matches(""));
  EXPECT_TRUE(one.matches(now));
  EXPECT_FALSE(one.matches(add) || one.matches(now + "\n" + now));
  Automaton xml = machine("add", ToolStyle::kQwenCoder, true);
  EXPECT_TRUE(xml.matches("<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=s>\nfree <text>\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_FALSE(xml.matches("<tool_call>\n<function=add>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>"));
}

TEST(ToolGrammar, AfterThinking) {
  JsonGrammar g;
  const OrderedJson j = OrderedJson::parse(R"({"type":"integer"})");
  const auto root = g.after_thinking(g.schema(j), false);
  Automaton a(g.take(root), bytes());
  EXPECT_TRUE(a.matches("<think>\nanything < / </thin </think>\n\n5"));
  EXPECT_TRUE(a.matches("5"));
  EXPECT_FALSE(a.matches("<think>5"));
}

}  // namespace
}  // namespace mxt::serve
