// Whatever pieces a text comes in, what is made of it is the same.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "serve/output/parsers.h"
#include "serve/output/text_stream.h"

namespace mxt::serve {
namespace {

struct Made {
  std::string content, reasoning;
  std::vector<std::string> names, arguments;
  bool operator==(const Made&) const = default;
};

Made run(const ParserSettings& s, const std::string& text, size_t piece, bool ended = true) {
  const auto p = make_parser(s);
  Deltas deltas;
  for (size_t i = 0; i < text.size(); i += piece) p->push(text.substr(i, piece), deltas);
  p->finish(deltas, ended);
  Made m;
  for (const Delta& d : deltas) {
    if (d.kind == Delta::Kind::kContent) m.content += d.text;
    if (d.kind == Delta::Kind::kReasoning) m.reasoning += d.text;
    if (d.kind == Delta::Kind::kNoReasoning) m.reasoning.clear();
    if (d.kind == Delta::Kind::kToolBegin) {
      EXPECT_EQ(d.index, static_cast<int64_t>(m.names.size()));
      EXPECT_FALSE(d.id.empty());
      m.names.push_back(d.name);
      m.arguments.emplace_back();
    }
    if (d.kind == Delta::Kind::kToolArguments) m.arguments.at(static_cast<size_t>(d.index)) += d.text;
  }
  return m;
}

void expect(const ParserSettings& s, const std::string& text, const Made& want, bool ended = true) {
  for (size_t piece : {1u, 2u, 3u, 5u, 7u, 11u, 1000u}) {
    const Made got = run(s, text, piece, ended);
    EXPECT_EQ(got.content, want.content) << piece << ": " << text;
    EXPECT_EQ(got.reasoning, want.reasoning) << piece << ": " << text;
    EXPECT_EQ(got.names, want.names) << piece << ": " << text;
    EXPECT_EQ(got.arguments, want.arguments) << piece << ": " << text;
  }
}

const ParserSettings kHermes{.tools = ToolStyle::kHermes};

TEST(Hermes, ACall) {
  expect(kHermes,
         "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, {\"c\": \"}\\\"\"}]}}\n</tool_call>",
         {"", "", {"add"}, {R"({"a": 1, "b": [2, {"c": "}\""}]})"}});
}
TEST(Hermes, TextBeforeAndSeveralCalls) {
  expect(kHermes,
         "I will.\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"b\", "
         "\"arguments\": {\"x\": \"<tool_call>\"}}\n</tool_call>\n",
         {"I will.", "", {"a", "b"}, {"{}", R"({"x": "<tool_call>"})"}});
}
TEST(Hermes, ArgumentsBeforeTheNameAndOtherMembers) {
  expect(kHermes, R"(<tool_call>{"arguments": {"x": 1}, "id": 7, "name": "f\u0041"}</tool_call>)",
         {"", "", {"fA"}, {R"({"x": 1})"}});
}
TEST(Hermes, WhatIsNoCallIsContent) {
  expect(kHermes, "<tool_call>\nno json\n</tool_call> more", {"<tool_call>\nno json\n</tool_call> more", "", {}, {}});
  expect(kHermes, "<tool_call>\n{\"arguments\": {}}\n</tool_call>",
         {"<tool_call>\n{\"arguments\": {}}\n</tool_call>", "", {}, {}});
  expect(kHermes, "a < b <tool_ca", {"a < b <tool_ca", "", {}, {}});
  expect(kHermes, "<tool_call>\n{\"na", {"<tool_call>\n{\"na", "", {}, {}});
}
TEST(Hermes, CutOffInTheMiddle) {
  expect(kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"lon", {"", "", {"f"}, {R"({"x": "lon"})"}});
  for (const auto& [text, arguments] :
       std::vector<std::pair<std::string, std::string>>{{R"({"a": [1, {"b": tr)", R"({"a": [1, {"b": null}]})"},
                                                        {R"({"a": 1, )", R"({"a": 1})"},
                                                        {R"({"a": 1, "b)", R"({"a": 1, "b": null})"},
                                                        {R"({"a": "x\u00)", R"({"a": "x"})"},
                                                        {R"({"a":)", R"({"a":null})"}})
    expect(kHermes, R"(<tool_call>{"name": "f", "arguments": )" + text, {"", "", {"f"}, {arguments}});
}
TEST(Hermes, ArgumentsAreAlwaysAnObject) {
  for (const auto& [text, arguments] : std::vector<std::pair<std::string, std::string>>{
           {"", "{}"},
           {R"(, "arguments": null)", "{}"},
           {R"(, "arguments": "")", "{}"},
           {R"(, "arguments": "{\"a\": 1}")", R"({"a": 1})"},
           {R"(, "parameters": {"a": 1})", R"({"a": 1})"},
           {R"(, "arguments": {"a": 123456789012345678901234567890})", R"({"a": 123456789012345678901234567890})"},
           {R"(, "arguments": {"a": True, "b": None,})", R"({"a": true, "b": null})"},
           {R"(, "arguments": {"a": [1, 2, ], })", R"({"a": [1, 2]})"},
           {", \"arguments\": {\"a\": \"x\ny\"}", R"({"a": "x\ny"})"},
           {R"(, "arguments": {"a": "\d+ \ud83d x \ud83d\ude00 \'"})", R"({"a": "\\d+ \ufffd x \ud83d\ude00 \\'"})"},
           {R"(, "arguments": {"a": Paris, "b": 1})", R"({"a": "Paris", "b": 1})"},
           {R"(, "arguments": {"a": New York , "b": [São Tomé, x_1]})",
            R"({"a": "New York", "b": ["São Tomé", "x_1"]})"},
           {R"(, "arguments": {"a": say "hi", "b": 1})", R"({"a": null})"},
           {R"(, "arguments": {"a": +5, "b": [007, -.5, 5., 1.e3, 0]})", R"({"a": 5, "b": [7, -0.5, 5.0, 1.0e3, 0]})"},
           {R"(, "arguments": {"a": NaN, "b": [-Infinity, undefined], "c": 1})",
            R"({"a": null, "b": [null, null], "c": 1})"},
           {R"(, "arguments": {"a": 0x1F, "b": 2026-11-27, "c": ., "d": -})",
            R"({"a": "0x1F", "b": "2026-11-27", "c": ".", "d": "-"})"},
           {R"(, "arguments": {"a": 1}, "arguments": {"b": 2})", R"({"a": 1})"}}) {
    const std::string whole = "<tool_call>{\"name\": \"f\"" + text + "}</tool_call>";
    expect(kHermes, whole, {"", "", {"f"}, {arguments}});
    EXPECT_TRUE(OrderedJson::accept(arguments)) << arguments;
  }
  expect(kHermes, "<tool_call>{\"name\": \"f\"}", {"", "", {"f"}, {"{}"}});
  // Arguments that are no object make no call.
  for (const char* other : {"5", "[1]", "\"text\"", "{'a': 1}", "true"}) {
    const std::string text = std::string("<tool_call>{\"name\": \"f\", \"arguments\": ") + other + "}</tool_call>";
    expect(kHermes, text, {text, "", {}, {}});
  }
}

// A call ends where its object does; what follows is never lost.
TEST(Hermes, SeveralCallsInABlockAndMissingTags) {
  const std::string a = R"({"name": "a", "arguments": {"x": 1}})", b = R"({"name": "b", "arguments": {}})";
  const Made both{"", "", {"a", "b"}, {R"({"x": 1})", "{}"}};
  for (const char* between : {"\n", ", ", "\n<tool_call>\n", "</tool_call><tool_call>", "\n<tool_call>",
                              "}\n<tool_call>\n", "}\n</tool_call>\n<tool_call>"})
    for (const char* end : {"\n</tool_call>", "", "</tool_call>\n"})
      expect(kHermes, "<tool_call>\n" + a + between + b + end, both);
  // Arguments that cannot be read are content, not lost.
  const std::string slip = R"(<tool_call>{"name": "a", arguments: {"x": 1}}</tool_call>)";
  expect(kHermes, slip, {slip, "", {}, {}});
  expect(kHermes, R"(<tool_call>{"name": "a"</tool_call>)", {"", "", {"a"}, {"{}"}});
  // Without its last bracket, too.
  expect(kHermes, R"(<tool_call>{"name": "a", "arguments": {"x": 1}<tool_call>)" + b + "</tool_call>", both);
  expect(kHermes, R"(<tool_call>{"name": "a", "arguments": {"x": 1}</tool_call>)" + std::string("Done."),
         {"Done.", "", {"a"}, {R"({"x": 1})"}});
  expect(kHermes, "<tool_call>" + a + " That is all.\n</tool_call> Bye.",
         {"That is all.\nBye.", "", {"a"}, {R"({"x": 1})"}});
  expect(kHermes, "<tool_call>" + a + "\nno more", {"no more", "", {"a"}, {R"({"x": 1})"}});
  expect(kHermes, "<tool_call>" + a + "\n{\"x\": 2}\n</tool_call>", {"{\"x\": 2}\n", "", {"a"}, {R"({"x": 1})"}});
  expect(kHermes, "<tool_call>\nno json\n<tool_call>" + a + "</tool_call>",
         {"<tool_call>\nno json\n", "", {"a"}, {R"({"x": 1})"}});
}
// What is given must be taken back: an object has each member once.
TEST(Hermes, OfMembersWithOneNameTheFirstStays) {
  for (const auto& [text, arguments] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a":1,"a":2})", R"({"a":1})"},
           {R"({"a":1, "b":2, "\u0061":[1,{"c":2}], "c":3})", R"({"a":1, "b":2, "c":3})"},
           {R"({"a":{"x":1,"x":{"y":"}"}},"a":"2"})", R"({"a":{"x":1}})"},
           {R"({"l":[{"a":1},{"a":1,"a":1}]})", R"({"l":[{"a":1},{"a":1}]})"}})
    expect(kHermes, R"(<tool_call>{"name": "f", "arguments": )" + text + "}</tool_call>", {"", "", {"f"}, {arguments}});
  for (const char* cut : {R"({"a":1,"a)", R"({"a":1,"a":)", R"({"a":1,"a":{"b":[2)", R"({"a":1,"a":"x)"})
    expect(kHermes, std::string(R"(<tool_call>{"name": "f", "arguments": )") + cut, {"", "", {"f"}, {R"({"a":1})"}});
}
TEST(Hermes, ANumberAtTheEndOfTheAnswerIsWhole) {
  const std::string text = R"(<tool_call>{"name": "f", "arguments": {"a": 12)";
  expect(kHermes, text, {"", "", {"f"}, {R"({"a": 12})"}});
  expect(kHermes, text, {"", "", {"f"}, {R"({"a": null})"}}, false);  // more digits might have come
}

OrderedJson tools() {
  return OrderedJson::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean"}}}}}])");
}

TEST(QwenCoder, ParametersByTheirTypes) {
  const OrderedJson t = tools();
  const ParserSettings s{.tools = ToolStyle::kQwenCoder, .tool_list = &t};
  expect(s,
         "ok\n<tool_call>\n<function=f>\n<parameter=n>\n42\n</parameter>\n<parameter=s>\n42\nlines "
         "\"q\"\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=z>\n[1]\n</parameter>\n</function>\n</"
         "tool_call>\n",
         {"ok", "", {"f"}, {R"({"n": 42, "s": "42\nlines \"q\"", "b": true, "z": [1]})"}});
  expect(s, "<tool_call><function=g></function></tool_call>", {"", "", {"g"}, {"{}"}});
  expect(s,
         "<tool_call><function= \"f\" ><parameter='n'>1</parameter><parameter= s >2</parameter></function></tool_call>",
         {"", "", {"f"}, {R"({"n": 1, "s": "2"})"}});
  expect(s, "<tool_call>x", {"<tool_call>x", "", {}, {}});
}

TEST(QwenCoder, MissingTagsLoseNothing) {
  const OrderedJson t = tools();
  const ParserSettings s{.tools = ToolStyle::kQwenCoder, .tool_list = &t};
  const auto n = [](int i) { return "<parameter=n>\n" + std::to_string(i) + "\n"; };
  const std::string end = "</parameter>\n", f = "<function=f>\n", close = "</function>\n";
  const Made two{"", "", {"f", "f"}, {R"({"n": 1})", R"({"n": 2})"}};
  for (const std::string& between : {close + f, close + "<tool_call>\n" + f, f, "</tool_call>\n<tool_call>\n" + f,
                                     close + "</tool_call>\n<tool_call>\n" + f, "<tool_call>" + f})
    expect(s, "<tool_call>\n" + f + n(1) + end + between + n(2) + end + close + "</tool_call>", two);
  const Made one{"", "", {"f"}, {R"({"n": 1, "s": "x"})"}};
  const std::string text = "<parameter=s>\nx\n";
  for (const char* tail :
       {"</function>\n</tool_call>", "</function>", "</tool_call>", "", "</parameter>\n</tool_call>"})
    for (const std::string& middle : {end, std::string()})
      expect(s, "<tool_call>\n" + f + n(1) + middle + text + tail, one);
  expect(s, "<tool_call>\n" + f + n(1) + "</function>\n</tool_call>\n<tool_call>\n" + f + n(2) + end + close, two);
  // A value may hold such tags in its lines.
  expect(s, "<tool_call>\n" + f + "<parameter=s>\na </function> b\n</tool_call>\nc\n" + end + close + "</tool_call>",
         {"", "", {"f"}, {R"({"s": "a </function> b\n</tool_call>\nc"})"}});
  expect(s, "<tool_call>\n" + f + "{\"n\": 1}\n" + close + "</tool_call>", {"{\"n\": 1}\n", "", {"f"}, {"{}"}});
  expect(s, "<tool_call>\n" + f + n(1) + end + close + "So be it.\n</tool_call>\nBye.",
         {"So be it.\nBye.", "", {"f"}, {R"({"n": 1})"}});
  // Cut off: a text as far as it came, nothing of what may go on.
  expect(s, "<tool_call>\n" + f + n(1) + end + "<parameter=s>\nxy", {"", "", {"f"}, {R"({"n": 1, "s": "xy"})"}}, false);
  expect(s, "<tool_call>\n" + f + "<parameter=n>\n1", {"", "", {"f"}, {"{}"}}, false);
  expect(s, "<tool_call>\n" + f + "<parameter=any>\n1", {"", "", {"f"}, {R"({"any": "1"})"}}, false);
  expect(s, "<tool_call>\n" + f + "<parameter=z>\n{\"a\":1,\"a\":2}\n" + end + close + "</tool_call>",
         {"", "", {"f"}, {R"({"z": {"a":1}})"}});
}

TEST(QwenCoder, TypesAreReadThroughTheSchema) {
  const OrderedJson t = OrderedJson::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","$defs":{"S":{"type":"string"},"A b":{"type":"integer"},"E":{"enum":["1","2"]}},
      "properties":{"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},"list":{"type":["string","null"]},"ref":{"$ref":"#/$defs/S"},"deep":{"allOf":[{"$ref":"#/$defs/A%20b"}]},
      "null":{"type":"string","nullable":true},"one":{"oneOf":[{"$ref":"#/$defs/E"}]},"const":{"const":"7"},"int":{"anyOf":[{"type":"integer"},{"type":"null"}]},"map":{"type":"object"}}}}}])");
  const OrderedJson whole = OrderedJson::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"$ref":"#/$defs/P","$defs":{"P":{"allOf":[{"properties":{"s":{"type":"string"}}},{"properties":{"n":{"type":"integer"}},"additionalProperties":{"type":"string"}}]}}}}}])");
  const ParserSettings s{.tools = ToolStyle::kQwenCoder, .tool_list = &t};
  expect({.tools = ToolStyle::kQwenCoder, .tool_list = &whole},
         "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n2\n</parameter>\n<parameter=x>\n"
         "3\n</parameter>\n</function>\n</tool_call>",
         {"", "", {"f"}, {R"({"s": "1", "n": 2, "x": "3"})"}});
  const OrderedJson patterns = OrderedJson::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"n_x":true},"patternProperties":{"^s_":{"type":"string"},"^n_":{"type":"integer"},"(?<=a)b":{"type":"string"}},"additionalProperties":{"type":"string"}}}}])");
  expect({.tools = ToolStyle::kQwenCoder, .tool_list = &patterns},
         "<tool_call>\n<function=f>\n<parameter=s_a>\n1\n</parameter>\n<parameter=n_a>\n2\n</parameter>\n"
         "<parameter=n_x>\n3\n</parameter>\n<parameter=x>\n4\n</parameter>\n</function>\n</tool_call>",
         {"", "", {"f"}, {R"({"s_a": "1", "n_a": 2, "n_x": 3, "x": "4"})"}});
  auto call = [](const std::string& key, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value + "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const auto& [key, value, want] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"maybe", "42", "\"42\""},
           {"maybe", "null", "null"},
           {"maybe", "true", "\"true\""},
           {"list", "1.5", "\"1.5\""},
           {"ref", "[1]", "\"[1]\""},
           {"deep", "42", "42"},
           {"null", "{}", "\"{}\""},
           {"one", "1", "\"1\""},
           {"const", "7", "\"7\""},
           {"int", "None", "null"},
           {"int", "340282366920938463463374607431768211456", "340282366920938463463374607431768211456"},
           {"map", "{\"a\": True}", "\"{\\\"a\\\": True}\""},
           {"unknown", "5", "5"}})
    expect(s, call(key, value), {"", "", {"f"}, {"{\"" + key + "\": " + want + "}"}});
  expect(s, "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
         {"", "", {"f"}, {R"({"a": 1})"}});
}

// Slips of every kind, at every place: arguments are one JSON object, and do not depend on the pieces that came.
TEST(Parsers, ArgumentsAreAnObjectWhateverIsWritten) {
  const std::string json_calls[] = {
      R"(<tool_call>{"name":"f","arguments":{"a":[1,"x\n\u00e9",{"b":null}],"c":-1.5e3}}</tool_call>)",
      "hi\n<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}\n</tool_call>\n<tool_call>{\"arguments\":"
      "{\"q\":true},\"name\":\"g\"}</tool_call>"};
  const std::string xml_calls[] = {
      "<tool_call>\n<function=f>\n<parameter=s>\nx\ny\n</parameter>\n<parameter=o>\n{\"a\":[1]}\n</parameter>\n"
      "</function>\n</tool_call>",
      "hi <tool_call>\n<function=f>\n<parameter=n>\nnull\n</parameter>\n</function>\n</tool_call>\n\n"
      "<tool_call>\n<function=f>\n</function>\n</tool_call>\nbye"};
  const std::string others = "{}[]\",:\\ \n\x01 a1-.e<>/=";
  std::mt19937 random(7);
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int i = 0; i < 6000; ++i) {
    const bool json = i % 2 == 0;
    std::string text = json ? json_calls[below(2)] : xml_calls[below(2)];
    for (size_t slips = 1 + below(3); slips > 0 && !text.empty(); --slips) {
      const size_t at = below(text.size());
      const size_t kind = below(8);
      if (kind < 3)
        text.erase(at, 1);
      else if (kind < 5)
        text.insert(at, 1, others[below(others.size())]);
      else if (kind < 7)
        text[at] = others[below(others.size())];
      else
        text.resize(at);
    }
    const ParserSettings s{.tools = json ? ToolStyle::kHermes : ToolStyle::kQwenCoder};
    const Made whole = run(s, text, 10'000);
    for (const auto& a : whole.arguments) {
      const auto v = nlohmann::json::parse(a, nullptr, false);
      ASSERT_TRUE(v.is_object()) << text << "\n" << a;
    }
    for (const size_t piece : {1u, 3u, 8u}) ASSERT_TRUE(run(s, text, piece) == whole) << piece << ": " << text;
  }
}

TEST(Think, ReasoningAndContent) {
  const ParserSettings s{.reasoning = ReasoningStyle::kThinkTags, .tools = ToolStyle::kHermes};
  ParserSettings thinking = s;
  thinking.starts_thinking = true;
  expect(s, "<think>\nhm\n\nso\n</think>\n\nAnswer\n", {"Answer\n", "hm\n\nso", {}, {}});
  expect(thinking, "hm</think>Answer", {"Answer", "hm", {}, {}});
  expect(thinking, "\n<think>\nhm\n</think>\n\n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>",
         {"", "hm", {"f"}, {"{}"}});
  // What is cut off was still thinking; what ended without a tag, under a prompt that opens one, never was.
  expect(thinking, "never ends", {"", "never ends", {}, {}}, false);
  expect(thinking, "Paris.\n", {"Paris.\n", "", {}, {}});
  expect(thinking, "1 < 2 </thin", {"1 < 2 </thin", "", {}, {}});
  expect(thinking, "So:\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>",
         {"So:", "", {"f"}, {R"({"a":1})"}});
  expect(thinking, "<think>opened by the model", {"", "opened by the model", {}, {}});
  expect(thinking, "\n", {"", "", {}, {}});
  expect(s, "no tags <think>x</think>", {"no tags <think>x</think>", "", {}, {}});
  expect(s, "<thi", {"<thi", "", {}, {}});
  expect(thinking, "<think>\n\n</think>\n\nhi", {"hi", "", {}, {}});
}

TEST(TextStream, CharactersAndStops) {
  for (size_t piece : {1u, 2u, 3u, 100u}) {
    TextStream s({"STOP", "é!"});
    std::string out;
    const std::string text = "na\xC3\xAFve \xF0\x9F\x98\x80 ST OP \xFF caf\xC3\xA9? STOP never";
    for (size_t i = 0; i < text.size() && !s.stopped(); i += piece) {
      const std::string t = s.push(text.substr(i, piece));
      EXPECT_TRUE(nlohmann::json(t).dump().size() > 0);
      out += t;
    }
    EXPECT_TRUE(s.stopped());
    EXPECT_EQ(s.stop(), "STOP");
    EXPECT_EQ(out + s.finish(), "na\xC3\xAFve \xF0\x9F\x98\x80 ST OP \xEF\xBF\xBD caf\xC3\xA9? ");
  }
  TextStream open({"abc"});
  std::string out = open.push("xab");
  EXPECT_EQ(out, "x");
  EXPECT_EQ(open.push("\xC3"), "");
  EXPECT_EQ(open.finish(), "ab\xEF\xBF\xBD");
}

}  // namespace
}  // namespace mxt::serve
