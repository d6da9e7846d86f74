#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

std::shared_ptr<const TokenBytes> bytes() {
  std::vector<std::string> b;
  for (int i = 0; i < 256; ++i) b.emplace_back(1, static_cast<char>(i));
  for (const char* s : {"{\"", "\": ", "\"}", "true", "false", "null", "12", "\", \"", "name", "<tool_call>", ""})
    b.emplace_back(s);
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
  const std::string s =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},"required":["b"],"additionalProperties":false})";
  yes(s, {R"({"b": "x"})", R"({"a": 1, "b": "x"})", R"({"a":1,"b":"x","c":true})", R"({"b":"x","c":false})"});
  no(s, {"{}", R"({"a": 1})", R"({"b": "x", "a": 1})", R"({"b": "x",})", R"({"b": 1})", R"({"b": "x", "d": 1})",
         R"({, "b": "x"})"});
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
  for (const auto& [low, high] :
       std::vector<std::pair<int, int>>{{0, 0}, {3, 17}, {-25, 104}, {-1000, -7}, {99, 1001}, {0, 255}}) {
    Automaton a = of(nlohmann::json{{"type", "integer"}, {"minimum", low}, {"maximum", high}}.dump());
    for (int x = -1200; x <= 1200; ++x)
      EXPECT_EQ(a.matches(std::to_string(x)), x >= low && x <= high) << low << " " << high << " " << x;
  }
  yes(R"({"type":"integer","exclusiveMinimum":0})", {"1", "99999"});
  no(R"({"type":"integer","exclusiveMinimum":0})", {"0", "-3"});
}

TEST(JsonGrammar, NumberRanges) {
  struct Range {
    double low, high;
    bool with_low, with_high;
  };
  for (const Range& r : std::vector<Range>{{0, 1, true, true},
                                           {0, 1, false, false},
                                           {-0.5, 0.25, true, false},
                                           {2.5, 2.75, false, true},
                                           {-12.05, -3.125, true, true},
                                           {9.99, 100.01, true, true},
                                           {0.125, 0.125, true, true},
                                           {-1, 0, true, false}}) {
    Automaton a = of(nlohmann::json{
        {"type", "number"},
        {r.with_low ? "minimum" : "exclusiveMinimum", r.low},
        {r.with_high ? "maximum" : "exclusiveMaximum",
         r.high}}.dump());
    for (int i = -130'000; i <= 1'020'000; i += i > -30'000 && i < 30'000 ? 5 : 37) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4f", i / 10'000.0);
      const double x = std::stod(text);
      const bool inside = (r.with_low ? x >= r.low : x > r.low) && (r.with_high ? x <= r.high : x < r.high);
      ASSERT_EQ(a.matches(text), inside) << r.low << " " << r.high << " " << text;
      std::string s = text;  // the same number with fewer zeros
      while (s.back() == '0') s.pop_back();
      if (s.back() == '.') s.pop_back();
      ASSERT_EQ(a.matches(s), inside) << r.low << " " << r.high << " " << s;
    }
    EXPECT_FALSE(a.matches("") || a.matches("1.") || a.matches(".5") || a.matches("01") || a.matches("-"));
  }
  yes(R"({"type":"number","minimum":-273.15})", {"-273.15", "-273.1499", "0", "-0.1", "99999.5"});
  no(R"({"type":"number","minimum":-273.15})", {"-273.16", "-274", "-273.150001"});
  yes(R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"});
  no(R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"0", "3"});
  yes(R"({"type":"integer","minimum":1,"maximum":9223372036854775807})", {"1", "999999999999999"});
}

TEST(JsonGrammar, Formats) {
  auto s = [](const char* format) { return nlohmann::json{{"type", "string"}, {"format", format}}.dump(); };
  yes(s("date"), {R"("2023-12-31")", R"("2000-02-29")"});
  no(s("date"), {R"("2023-02-29")", R"("1900-02-29")", R"("2023-04-31")"});
  yes(s("date-time"), {R"("2023-12-31T23:59:59Z")", R"("2023-12-31T23:59:59.5+02:00")"});
  yes(s("email"), {R"("a.b+c@x-y.org")"});
  no(s("email"), {R"("a b@x.org")", R"("a@x")", R"("a..b@x.org")", R"("@x.org")"});
  yes(s("ipv4"), {R"("0.10.200.255")"});
  no(s("ipv4"), {R"("256.1.1.1")", R"("01.1.1.1")", R"("1.1.1")"});
  yes(s("hostname"), {R"("a-b.example")"});
  no(s("hostname"), {R"("-a")", R"("a..b")"});
  yes(s("uri"), {R"("https://example.org:80/a/%20b?q=1#x")"});
  no(s("uri"), {R"("no uri")", R"("https://")"});
  yes(s("duration"), {R"("P3D")", R"("PT1H30M")"});
  no(s("duration"), {R"("P")", R"("PT")"});
  yes(R"({"type":"integer","format":"int32"})", {"5"});
}

TEST(JsonGrammar, WhatStandsBesideHolds) {
  const std::string either =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})";
  yes(either, {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"});
  no(either, {"{}", "5", R"({"c": 1})"});
  const std::string shorter = R"({"$ref":"#/$defs/s","maxLength":2,"$defs":{"s":{"type":"string","minLength":1}}})";
  yes(shorter, {R"("a")", R"("ab")"});
  no(shorter, {R"("")", R"("abc")"});
  const std::string all =
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"a":{"maxLength":3}}}]})";
  yes(all, {R"({"a": "abc"})"});
  no(all, {R"({"a": "abcd"})", R"({"a": 1})", "{}"});
  yes(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"maxItems":1})", {"[5]"});
  no(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"maxItems":1})", {"[5,true]"});
}

TEST(JsonGrammar, ReferencesMayRecur) {
  const std::string tree =
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})";
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
  for (const char* s : {R"({"type":"strng"})",
                        R"({"type":5})",
                        R"({"type":[]})",
                        R"(false)",
                        R"(5)",
                        R"({"enum":[]})",
                        R"({"properties":3})",
                        R"({"required":["x"],"properties":{}})",
                        R"({"$ref":"http://x/y"})",
                        R"({"$ref":"#/nowhere"})",
                        R"({"$ref":"#nonsense"})",
                        R"({"not":{}})",
                        R"({"type":"array","minItems":-1})",
                        R"({"type":"array","minItems":3,"maxItems":1})",
                        R"({"type":"string","maxLength":1000000000})",
                        R"({"type":"string","pattern":"("})",
                        R"x({"type":"string","pattern":"(?=a)"})x",
                        R"({"type":"string","pattern":"\\1"})",
                        R"({"type":"string","pattern":"a{5000}"})",
                        R"({"type":"string","pattern":"[z-a]"})",
                        R"({"type":"string","pattern":"*"})",
                        R"({"type":"integer","minimum":3,"maximum":1})",
                        R"({"type":"integer","minimum":1e300})",
                        R"({"type":"number","minimum":"1"})",
                        R"({"type":"number","minimum":2,"exclusiveMaximum":2})",
                        R"({"anyOf":{}})",
                        R"({"type":"string","format":"zebra"})",
                        R"({"type":"string","nullable":"yes"})",
                        R"({"properties":{"a":true},"allOf":[{"properties":[1]}]})",
                        R"({"allOf":[{"$ref":"#/a~2b"}]})",
                        R"({"required":["a"],"properties":{"a":true},"allOf":[{"required":"a"}]})",
                        R"({"type":"string","$ref":"#/$defs/n","$defs":{"n":{"type":"null"}}})",
                        R"({"type":"array","prefixItems":[true],"minItems":2})",
                        R"({"type":"string","format":"email","maxLength":3})",
                        R"({"$ref":"#","title":"x","maxLength":3})",
                        R"({"allOf":[1]})"})
    EXPECT_THROW(of(s), Error) << s;
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_THROW(of(deep), Error);
  std::string wide =
      R"({"type":"array","minItems":4000,"items":{"type":"array","minItems":4000,"items":{"type":"array","minItems":4000}}})";
  Automaton a = of(wide);  // lazily: the states are not made
  EXPECT_FALSE(a.matches("[]"));
}

TEST(Automaton, TokensAreThoseThatCanGoOn) {
  Automaton a = of(
      R"({"type":"object","properties":{"name":{"enum":[true,12]}},"required":["name"],"additionalProperties":false})");
  auto allowed = [&](const std::string& text, int32_t id) {
    Automaton::State s = a.start();
    for (char c : text) s = a.next(s, static_cast<unsigned char>(c));
    return ((a.tokens(s)[static_cast<size_t>(id) / 64] >> (id % 64)) & 1) != 0;
  };
  EXPECT_TRUE(allowed("", '{'));
  EXPECT_TRUE(allowed("", 256));  // {"
  EXPECT_FALSE(allowed("", 'a'));
  EXPECT_TRUE(allowed("{\"", 264));  // name
  EXPECT_FALSE(allowed("{\"", 263));
  EXPECT_TRUE(allowed("{\"name", 257));
  EXPECT_TRUE(allowed("{\"name\": ", 259));
  EXPECT_FALSE(allowed("{\"name\": ", 260));
  EXPECT_TRUE(allowed("{\"name\": ", 262));
  EXPECT_FALSE(allowed("{\"name\": true", 258));
  EXPECT_TRUE(allowed("{\"name\": true", '}'));
  EXPECT_FALSE(allowed("{\"name\": true}", '}'));
  EXPECT_FALSE(allowed("", 266));  // empty: never
}

TEST(Automaton, NestingIsBounded) {
  Automaton a = of("{}");
  EXPECT_TRUE(a.matches(std::string(50, '[') + std::string(50, ']')));
  EXPECT_FALSE(a.matches(std::string(5000, '[') + std::string(5000, ']')));
}

TEST(ToolGrammar, HermesAndQwenCoder) {
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"s":{"type":"string"}},"required":["a"]}}},
    {"type":"function","function":{"name":"now"}}])");
  auto machine = [&](const std::string& only, ToolStyle style, bool single) {
    JsonGrammar g;
    const auto root = g.tool_calls(tools, only, style, single);
    return Automaton(g.take(root), bytes());
  };
  const std::string add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 5}}\n</tool_call>",
                    now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  Automaton any = machine("", ToolStyle::kHermes, false), one = machine("now", ToolStyle::kHermes, true);
  EXPECT_TRUE(any.matches(add) && any.matches(now) && any.matches(add + "\n" + now));
  EXPECT_FALSE(any.matches("hello") || any.matches(""));
  EXPECT_TRUE(one.matches(now));
  EXPECT_FALSE(one.matches(add) || one.matches(now + "\n" + now));
  Automaton xml = machine("add", ToolStyle::kQwenCoder, true);
  EXPECT_TRUE(
      xml.matches("<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=s>\nfree "
                  "<text>\n</parameter>\n</function>\n</tool_call>"));
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
