// Calls of tools as grammars, in both styles.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"

namespace mxt::serve {
namespace {

std::shared_ptr<const TokenBytes> bytes() {
  std::vector<std::string> b;
  for (int i = 0; i < 256; ++i) b.emplace_back(1, static_cast<char>(i));
  return std::make_shared<TokenBytes>(b);
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

// A call of f in Qwen-coder's form, its arguments as they stand: one a line, NAME=TEXT.
struct Coder {
  std::shared_ptr<Automaton> a;
  explicit Coder(const std::string& parameters) {
    const OrderedJson tools = OrderedJson::array(
        {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", OrderedJson::parse(parameters)}}}}});
    JsonGrammar g;
    const auto root = g.tool_calls(tools, "", ToolStyle::kQwenCoder, true);
    a = std::make_shared<Automaton>(g.take(root), bytes());
  }
  bool takes(const std::vector<std::pair<std::string, std::string>>& arguments) const {
    std::string text = "<tool_call>\n<function=f>\n";
    for (const auto& [name, value] : arguments) text += "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
    return a->matches(text + "</function>\n</tool_call>");
  }
};

// Arguments are an object, also where their schema allows null beside it.
TEST(ToolGrammar, ArgumentsThatMayBeNullAreAnObject) {
  for (const char* type : {R"(["object","null"])", R"(["null","object"])", R"(["object"])"}) {
    const std::string schema =
        std::string(R"({"type":)") + type + R"(,"properties":{"n":{"type":"integer"}},"required":["n"]})";
    const Coder c(schema);
    EXPECT_TRUE(c.takes({{"n", "5"}})) << type;
    EXPECT_FALSE(c.takes({}) || c.takes({{"n", "x"}})) << type;
    const OrderedJson tools = OrderedJson::array(
        {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", OrderedJson::parse(schema)}}}}});
    JsonGrammar g;
    const auto root = g.tool_calls(tools, "", ToolStyle::kHermes, true);
    Automaton a(g.take(root), bytes());
    const auto call = [](const std::string& arguments) {
      return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
    };
    EXPECT_TRUE(a.matches(call("{\"n\": 5}"))) << type;
    EXPECT_FALSE(a.matches(call("null")) || a.matches(call("{}"))) << type;
  }
}

// What a schema says of a text holds where the text stands without quotation marks.
TEST(ToolGrammar, QwenCodersTextsAreHeld) {
  const auto held = [](const std::string& schema, const std::vector<std::string>& good,
                       const std::vector<std::string>& bad) {
    const Coder c(R"({"type":"object","properties":{"p":)" + schema + R"(},"required":["p"]})");
    for (const auto& t : good) EXPECT_TRUE(c.takes({{"p", t}})) << schema << " " << t;
    for (const auto& t : bad) EXPECT_FALSE(c.takes({{"p", t}})) << schema << " " << t;
    EXPECT_FALSE(c.takes({}));
  };
  held(R"({"type":"string"})", {"", "a \"q\"\nb\\", "<b>é</b>", "12", "</p", "\n\n"}, {"a</parameter>b", "\xff\x01"});
  held(R"({"const":"a \"b\""})", {"a \"b\""}, {"a", "\"a \\\"b\\\"\""});
  held(R"({"type":"string","pattern":"^[a-z\"]+$"})", {"ab", "a\"b"}, {"", "A", "\"a\\\"\""});
  held(R"({"type":"string","pattern":"^.*$"})", {"x </b>"}, {"x\ny", "a</parameter>"});
  held(R"({"type":"string","format":"date"})", {"2025-02-28"}, {"2025-02-29", "\"2025-02-28\"", "now"});
  held(R"({"type":"string","minLength":2,"maxLength":4})", {"ab", "éééé", "a\nb", "<<<"}, {"a", "abcde", ""});
  held(R"({"type":"string","maxLength":100})", {"", std::string(100, 'x'), "<p>é</p> a << b", std::string(80, '\n')},
       {std::string(101, 'x'), std::string(51, '<') + std::string(51, 'x')});
  held(R"({"type":"string","minLength":40})", {std::string(40, 'x'), "<a></a>" + std::string(50, '\n')},
       {std::string(39, 'x'), std::string(39, 'x') + "</parameter>"});
  held(R"({"type":"string","pattern":"^a","maxLength":3})", {"a", "abc", "a\"b"}, {"b", "abcd"});
  held(R"({"anyOf":[{"type":"string","enum":["a","b"]},{"type":"null"}]})", {"a", "b", "null"}, {"c", "\"a\"", ""});
  held(R"({"anyOf":[{"type":"string","pattern":"^\\d{2}$"},{"type":"integer","minimum":100}]})", {"100", "250"},
       {"12", "99", "x"});  // 12 would be read as a number, which is too small
  held(R"({"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]})", {"12", "abc", "null", "nul"},
       {"abcd", "None"});
  held(R"({"type":["string","integer"]})", {"abc", "12", "1.5", "[1]"}, {});
  held(R"({"oneOf":[{"const":"x"},{"const":"y"}]})", {"x", "y"}, {"z", ""});
  held(R"({"type":"string","enum":["a",1]})", {"a"}, {"1"});
  held(R"({"type":"string","not":{"enum":["a","b"]}})", {"c", "ab", ""}, {"a", "b"});
  held(R"({"allOf":[{"type":"string"},{"maxLength":2},{"pattern":"^x"}]})", {"x", "xy"}, {"xyz", "y"});
  held(R"({"type":"array","items":{"type":"string","maxLength":1}})", {R"(["a","b"])", "[]"}, {R"(["ab"])", "a"});
  held(R"({"type":"object","properties":{"s":{"const":"v"}},"required":["s"]})", {R"({"s":"v"})"},
       {R"({"s":v})", "{}"});
  held(R"({"type":"integer","maximum":9})", {"7"}, {"10", "\"7\""});
}

TEST(ToolGrammar, QwenCodersArgumentsAreThoseOfTheWholeSchema) {
  const Coder ref(
      R"({"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}})");
  EXPECT_TRUE(ref.takes({{"n", "1"}}));
  EXPECT_FALSE(ref.takes({}) || ref.takes({{"n", "x"}}));
  const Coder all(
      R"({"allOf":[{"properties":{"a":{"type":"string","maxLength":1}},"required":["a"]},{"properties":{"b":{"type":"boolean"}}}]})");
  EXPECT_TRUE(all.takes({{"a", "x"}}) && all.takes({{"a", "x"}, {"b", "true"}}));
  EXPECT_FALSE(all.takes({}) || all.takes({{"b", "true"}}) || all.takes({{"a", "xy"}}));
  const Coder undeclared(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a","z"]})");
  EXPECT_TRUE(undeclared.takes({{"a", "1"}, {"z", "any"}}));
  EXPECT_FALSE(undeclared.takes({{"a", "1"}}));
  const Coder either(
      R"({"type":"object","anyOf":[{"properties":{"x":{"const":"1"}},"required":["x"]},{"properties":{"y":{"type":"integer"}},"required":["y"]}]})");
  EXPECT_TRUE(either.takes({{"x", "1"}}) && either.takes({{"y", "2"}}));
  EXPECT_FALSE(either.takes({}) || either.takes({{"x", "2"}}));
  const Coder count(
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"minProperties":1,"maxProperties":1})");
  EXPECT_TRUE(count.takes({{"b", "x"}}));
  EXPECT_FALSE(count.takes({}) || count.takes({{"a", "x"}, {"b", "x"}}));
  EXPECT_TRUE(Coder(R"({"type":"object"})").takes({{"any_thing", "x"}}));
  EXPECT_TRUE(Coder(R"({"type":"object"})").takes({}));
  EXPECT_FALSE(Coder(R"({"type":"object","additionalProperties":false})").takes({{"x", "1"}}));
  // What no answer can be held to is refused by its name.
  EXPECT_THROW(Coder(R"({"type":"object","properties":{"p":{"type":"string","format":"lunar"}}})"), Error);
  EXPECT_THROW(Coder(R"({"type":"object","properties":{"a>b":{"type":"string"}}})"), Error);
  EXPECT_THROW(Coder(R"({"enum":[{"a":1}]})"), Error);
}

// As servers of tools give them: many, with optional texts and short lists of values.
TEST(ToolGrammar, ManyToolsCostLittle) {
  OrderedJson tools = OrderedJson::array();
  for (int i = 0; i < 100; ++i) {
    OrderedJson properties = OrderedJson::object();
    for (int k = 0; k < 8; ++k)
      properties["p" + std::to_string(k)] =
          OrderedJson::parse(k % 2 ? R"({"anyOf":[{"type":"string"},{"type":"null"}],"default":null})"
                                   : R"({"anyOf":[{"enum":["asc","desc","none"],"type":"string"},{"type":"null"}]})");
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", "f" + std::to_string(i)},
                       {"parameters", {{"type", "object"}, {"properties", std::move(properties)}}}}}});
  }
  JsonGrammar g;
  const auto begun = std::chrono::steady_clock::now();
  const auto root = g.tool_calls(tools, "", ToolStyle::kQwenCoder, false);
  Automaton a(g.take(root), bytes());
  EXPECT_TRUE(a.matches("<tool_call>\n<function=f99>\n<parameter=p1>\nx\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), 5.0);
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
