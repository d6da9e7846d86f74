#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "serve/schemas.h"

namespace mxt::serve {
namespace {

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

TEST(JsonGrammar, NoKeywordIsDroppedBesideAnother) {
  yes(R"({"enum":["a",1,null,2.5],"type":"string"})", {R"("a")"});
  no(R"({"enum":["a",1,null,2.5],"type":"string"})", {"1", "null", "2.5"});
  yes(R"({"type":["integer","null"],"enum":[1,5,null,"x"],"maximum":4})", {"1", "null"});
  no(R"({"type":["integer","null"],"enum":[1,5,null,"x"],"maximum":4})", {"5", "\"x\""});
  yes(R"({"enum":["ab","abc","b"],"pattern":"^a","minLength":3})", {R"("abc")"});
  no(R"({"enum":["ab","abc","b"],"pattern":"^a","minLength":3})", {R"("ab")", R"("b")"});
  yes(R"({"const":7,"enum":[7,8],"minimum":0})", {"7"});
  no(R"({"const":7,"enum":[7,8]})", {"8"});
  yes(R"({"enum":[{"a":1},{"a":"x"},[1,1],[1]],"properties":{"a":{"type":"integer"}},"uniqueItems":true})",
      {R"({"a":1})", "[1]"});
  no(R"({"enum":[{"a":1},{"a":"x"},[1,1],[1]],"properties":{"a":{"type":"integer"}},"uniqueItems":true})",
     {R"({"a":"x"})", "[1,1]"});
  // Without a type: what the keywords speak of.
  yes(R"({"minimum":3})", {"3", "7.5"});
  no(R"({"minimum":3})", {"2", "\"x\""});
  yes(R"({"maxLength":2,"maximum":9})", {R"("ab")", "9"});
  no(R"({"maxLength":2,"maximum":9})", {R"("abc")", "10", "true"});
  // Texts: pattern, format and length at once.
  const std::string name = R"({"type":"string","pattern":"^[a-z]+b$","minLength":3,"maxLength":5})";
  yes(name, {R"("aab")", R"("aaaab")"});
  no(name, {R"("ab")", R"("aaaaab")", R"("aaa")"});
  yes(R"({"type":"string","format":"ipv4","pattern":"^10\\.","maxLength":9})", {R"("10.0.0.1")"});
  no(R"({"type":"string","format":"ipv4","pattern":"^10\\.","maxLength":9})", {R"("10.0.0.100")", R"("9.0.0.1")"});
  yes(R"({"type":"string","pattern":"^é+$","maxLength":2})", {R"("éé")"});
  no(R"({"type":"string","pattern":"^é+$","maxLength":2})", {R"("ééé")"});
  yes(R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$"}]})", {R"("az")", R"("abz")"});
  no(R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$"}]})", {R"("a")", R"("bz")"});
  yes(R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})", {"14", "21", "28"});
  no(R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})", {"7", "15", "35"});
  yes(R"({"type":"number","multipleOf":0.01,"minimum":0})", {"1.25", "3", "0.1"});
  no(R"({"type":"number","multipleOf":0.01,"minimum":0})", {"1.255", "-1"});
  // nullable beside what is no type.
  const std::string maybe = R"({"$ref":"#/$defs/n","nullable":true,"$defs":{"n":{"type":"integer"}}})";
  yes(maybe, {"null", "5"});
  no(maybe, {"\"x\""});
  yes(R"({"anyOf":[{"type":"integer"}],"nullable":true})", {"null", "5"});
  no(R"({"enum":["a"],"nullable":true})", {"null"});
  no(R"({"const":"a","nullable":true})", {"null"});
  yes(R"({"enum":["a",null],"nullable":true})", {"null", R"("a")"});
  // Alternatives that the rest excludes fall away.
  yes(R"({"type":"string","anyOf":[{"maxLength":2},{"type":"integer"}]})", {R"("ab")"});
  no(R"({"type":"string","anyOf":[{"maxLength":2},{"type":"integer"}]})", {"5", R"("abc")"});
  const std::string two =
      R"({"anyOf":[{"type":"integer"},{"type":"string"}],"allOf":[{"anyOf":[{"type":"integer","maximum":5},{"type":"string","maxLength":1}]}]})";
  yes(two, {"5", R"("a")"});
  no(two, {"6", R"("ab")"});
}

TEST(JsonGrammar, IntegersOfAnySize) {
  const std::string wei =
      R"({"type":"integer","minimum":18446744073709551615,"maximum":115792089237316195423570985008687907853269984665640564039457584007913129639935})";
  yes(wei, {"18446744073709551615", "18446744073709551616", "20000000000000000000",
            "115792089237316195423570985008687907853269984665640564039457584007913129639935"});
  no(wei,
     {"18446744073709551614", "5", "115792089237316195423570985008687907853269984665640564039457584007913129639936",
      "018446744073709551615", "18446744073709551615.5"});
  yes(R"({"type":"integer","exclusiveMaximum":-100000000000000000000})", {"-100000000000000000001"});
  no(R"({"type":"integer","exclusiveMaximum":-100000000000000000000})", {"-100000000000000000000", "0"});
  yes(R"({"type":"number","minimum":1e20,"maximum":1e22})", {"100000000000000000000", "5000000000000000000000.5"});
  no(R"({"type":"number","minimum":1e20,"maximum":1e22})", {"99999999999999999999.9", "10000000000000000000001"});
  // Listed ones keep their digits, and are compared by them.
  const std::string listed =
      R"({"enum":[18446744073709551616,18446744073709551617,{"a":[100000000000000000001]}],"type":["integer","object"]})";
  yes(listed, {"18446744073709551616", "18446744073709551617", R"({"a":[100000000000000000001]})"});
  no(listed, {"18446744073709551618", "1.8446744073709552e19"});
  yes(R"({"enum":[18446744073709551616,18446744073709551617],"maximum":18446744073709551616})",
      {"18446744073709551616"});
  no(R"({"enum":[18446744073709551616,18446744073709551617],"maximum":18446744073709551616})",
     {"18446744073709551617"});
  yes(R"({"const":1180591620717411303424,"type":"integer"})", {"1180591620717411303424"});
  // Both of allOf, exactly.
  no(R"({"type":"integer","allOf":[{"maximum":9007199254740993},{"maximum":9007199254740992}]})", {"9007199254740993"});
  yes(R"({"type":"integer","allOf":[{"maximum":9007199254740993},{"maximum":9007199254740992}]})",
      {"9007199254740992"});
  // Before 2017 an exclusive bound was true or false.
  yes(R"({"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false})", {"2", "3"});
  no(R"({"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false})", {"1", "4"});
}

TEST(JsonGrammar, MultiplesOfAnyStep) {
  for (const auto& [step, places] :
       std::vector<std::pair<int, int>>{{50, 2}, {25, 1}, {5, 2}, {7, 0}, {1024, 0}, {3, 3}}) {
    const double x = step / std::pow(10.0, places);
    Automaton a = of(nlohmann::json{{"type", "number"}, {"multipleOf", x}, {"minimum", -40}, {"maximum", 4100}}.dump());
    for (int i = -100'000; i <= 4'200'000; i += 13) {
      char text[32];
      std::snprintf(text, sizeof text, "%.3f", i / 1000.0);
      std::string s = text;
      while (s.back() == '0') s.pop_back();
      if (s.back() == '.') s.pop_back();
      if (s == "-0") continue;
      const int64_t scaled = static_cast<int64_t>(i) * static_cast<int64_t>(std::pow(10, places));
      const bool is = i >= -40'000 && i <= 4'100'000 && scaled % (int64_t{step} * 1000) == 0;
      ASSERT_EQ(a.matches(s), is) << x << " " << s;
    }
  }
  yes(R"({"type":"integer","multipleOf":1000000,"maximum":9000000})", {"0", "3000000", "-7000000"});
  no(R"({"type":"integer","multipleOf":1000000,"maximum":9000000})", {"300000", "10000000", "1", "-0"});
  yes(R"({"type":"integer","multipleOf":1000000000000000000})", {"5000000000000000000"});
  yes(R"({"type":"number","allOf":[{"multipleOf":0.2},{"multipleOf":0.5}],"minimum":0,"maximum":3})", {"1", "2", "3"});
  no(R"({"type":"number","allOf":[{"multipleOf":0.2},{"multipleOf":0.5}],"minimum":0,"maximum":3})", {"0.2", "0.5"});
  yes(R"({"enum":[0.6,0.7],"multipleOf":0.3})", {"0.6"});
  no(R"({"enum":[0.6,0.7],"multipleOf":0.3})", {"0.7"});
}

TEST(JsonGrammar, NotOfWhatHasAnOpposite) {
  yes(R"({"type":"object","properties":{"a":{"not":{}},"b":{"type":"integer"}},"required":["b"]})", {R"({"b":1})"});
  no(R"({"type":"object","properties":{"a":{"not":{}},"b":{"type":"integer"}},"required":["b"]})",
     {R"({"a":1,"b":1})"});
  no(R"({"type":"object","properties":{"b":{"type":"integer"}},"additionalProperties":{"not":{}}})", {R"({"c":1})"});
  yes(R"({"not":{"type":"null"}})", {"1", R"("x")", "[]", "{}", "true"});
  no(R"({"not":{"type":"null"}})", {"null"});
  no(R"({"not":{"type":["string","number"]}})", {"1", "1.5", R"("x")"});
  yes(R"({"enum":["a","b",3],"not":{"enum":["a",3.0]}})", {R"("b")"});
  no(R"({"enum":["a","b",3],"not":{"enum":["a",3.0]}})", {R"("a")", "3"});
  const std::string word = R"({"type":"string","maxLength":5,"not":{"const":"bad"}})";
  yes(word, {R"("good")", R"("ba")", R"("badly")", R"("")"});
  no(word, {R"("bad")", R"("\u0062ad")", R"("longer")"});
  yes(R"({"type":"integer","minimum":0,"not":{"enum":[0,7]}})", {"1", "70", "17"});
  no(R"({"type":"integer","minimum":0,"not":{"enum":[0,7]}})", {"0", "7", "-0", "-1"});
  yes(R"({"not":{"const":"a"}})", {R"("b")", "1", "null"});
  no(R"({"not":{"const":"a"}})", {R"("a")"});
  no(R"({"type":["boolean","null"],"not":{"enum":[true,null]}})", {"true", "null"});
  yes(R"({"type":["boolean","null"],"not":{"enum":[true,null]}})", {"false"});
  yes(R"({"type":"integer","not":{"minimum":3}})", {"2"});
  no(R"({"type":"integer","not":{"minimum":3}})", {"3"});
  yes(R"({"type":"string","not":{"maxLength":2}})", {R"("abc")"});
  no(R"({"type":"string","not":{"maxLength":2}})", {R"("ab")"});
  yes(R"({"type":"string","not":{"anyOf":[{"const":"a"},{"const":"b"}]}})", {R"("c")"});
  no(R"({"type":"string","not":{"anyOf":[{"const":"a"},{"const":"b"}]}})", {R"("a")", R"("b")"});
  yes(R"({"type":"string","allOf":[{"not":{"const":"a"}},{"not":{"$ref":"#/$defs/b"}}],"$defs":{"b":{"const":"b"}}})",
      {R"("c")"});
  no(R"({"type":"string","allOf":[{"not":{"const":"a"}},{"not":{"$ref":"#/$defs/b"}}],"$defs":{"b":{"const":"b"}}})",
     {R"("a")", R"("b")"});
  no(R"({"type":"integer","not":{"not":{"minimum":3}}})", {"2"});
  const std::string open = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},)";
  yes(open + R"("not":{"required":["a","b"]}})", {R"({"a":1})", R"({"b":1})", "{}"});
  no(open + R"("not":{"required":["a","b"]}})", {R"({"a":1,"b":1})"});
  yes(open + R"("not":{"properties":{"a":{"minimum":5}},"required":["a"]}})", {R"({"a":4})", "{}", R"({"b":9})"});
  no(open + R"("not":{"properties":{"a":{"minimum":5}},"required":["a"]}})", {R"({"a":5})"});
  for (const char* hard :
       {R"({"type":"string","not":{"pattern":"a"}})", R"({"type":"number","not":{"const":1}})",
        R"({"not":{"type":"integer"}})", R"({"not":{"type":"strin"}})", R"({"not":5})", R"({"not":{"minLength":-3}})",
        R"({"type":"string","not":{"maxLength":9223372036854775807}})",
        R"({"type":"array","not":{"items":{"type":"integer"}}})"})
    EXPECT_THROW(yes(hard, {}), Error) << hard;
}

TEST(JsonGrammar, ConditionsAreWhatTheyDecideBetween) {
  const std::string pay =
      R"({"type":"object","properties":{"kind":{"enum":["card","cash"]},"number":{"type":"string"}},"required":["kind"],)";
  const std::string then = R"("if":{"properties":{"kind":{"const":"card"}}},"then":{"required":["number"]})";
  yes(pay + then + "}", {R"({"kind":"card","number":"1"})", R"({"kind":"cash"})", R"({"kind":"cash","number":"1"})"});
  no(pay + then + "}", {R"({"kind":"card"})"});
  no(pay + then + R"(,"else":{"properties":{"number":false}}})",
     {R"({"kind":"cash","number":"1"})", R"({"kind":"card"})"});
  yes(pay + R"("allOf":[{)" + then +
          R"(},{"if":{"properties":{"kind":{"const":"cash"}}},"then":{"not":{"required":["number"]}}}]})",
      {R"({"kind":"card","number":"1"})", R"({"kind":"cash"})"});
  no(pay + R"("allOf":[{)" + then +
         R"(},{"if":{"properties":{"kind":{"const":"cash"}}},"then":{"not":{"required":["number"]}}}]})",
     {R"({"kind":"card"})", R"({"kind":"cash","number":"1"})"});
  yes(R"({"type":"integer","if":{"minimum":10},"then":{"multipleOf":5},"else":{"maximum":3}})", {"15", "3", "-4"});
  no(R"({"type":"integer","if":{"minimum":10},"then":{"multipleOf":5},"else":{"maximum":3}})", {"11", "5"});
  yes(R"({"type":"integer","then":false})", {"1"});
  EXPECT_THROW(yes(R"({"if":{"$ref":"#"},"then":{"type":"integer"}})", {}), Error);
  // What is its own opposite says nothing, wherever that is noticed.
  for (const char* itself : {R"({"not":{"$ref":"#"}})", R"({"not":{"$ref":"#/$defs/a"},"$defs":
                             {"a":{"not":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}})"})
    EXPECT_THROW(yes(itself, {}), Error) << itself;
  for (const char* itself : {R"({"type":"string","not":{"$ref":"#"}})", R"({"not":{"not":{"not":{"$ref":"#"}}}})",
                             R"({"type":"string","not":{"anyOf":[{"$ref":"#"},{"enum":["a"]}]}})"})
    no(itself, {"", "1", R"("a")", R"("b")"});
  EXPECT_THROW(yes(R"({"type":"array","contains":{"const":3}})", {}), Error);
}

TEST(JsonGrammar, MembersThatDependOnOthersAndOnTheirNames) {
  const std::string pays =
      R"({"type":"object","properties":{"card":{"type":"integer"},"bill":{"type":"integer"}},"additionalProperties":false,"dependentRequired":{"card":["bill"]}})";
  yes(pays, {"{}", R"({"bill": 1})", R"({"card": 1, "bill": 2})"});
  no(pays, {R"({"card": 1})"});
  const std::string named =
      R"({"type":"object","properties":{"a1":{"type":"integer"},"z":{"const":0}},"patternProperties":{"^a":{"maximum":5,"type":"integer"},"b$":{"type":"boolean"}},"required":["a1"]})";
  yes(named, {R"({"a1": 5})", R"({"a1": 5, "ax": 3})", R"({"a1": 5, "z": 0, "xb": true})"});
  no(named, {R"({"a1": 6})", R"({"a1": 5, "ax": true})", R"({"a1": 5, "xb": 1})", R"({"a1": 5, "q": 1})",
             R"({"a1": 5, "\u0061x": true})"});
  const std::string rest =
      R"({"type":"object","patternProperties":{"^a":{"type":"boolean"}},"additionalProperties":{"const":1}})";
  yes(rest, {R"({"a": true, "b": 1})"});
  no(rest, {R"({"a": 1})", R"({"b": true})", R"({"\u0061": 1})"});
  const std::string closed =
      R"({"allOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":2}}}],"unevaluatedProperties":false})";
  yes(closed, {R"({"a":1})", R"({"a":1,"b":2})"});
  no(closed, {R"({"a":1,"c":3})"});
  // Of listed values none that two branches allow.
  yes(R"({"oneOf":[{"enum":[1,2]},{"enum":[2,3]}]})", {"1", "3"});
  no(R"({"oneOf":[{"enum":[1,2]},{"enum":[2,3]}]})", {"2"});
  yes(R"({"$id":"https://x.y/z","properties":{"a":{"$ref":"https://x.y/z#/$defs/n"}},"$defs":{"n":{"type":"null"}}})",
      {R"({"a": null})"});
}

TEST(JsonGrammar, ContainsHoldsForListedValues) {
  const auto listed = [](const std::string& of_a) {
    return R"({"enum":[{"a":[1]},{"a":[2,2]},{"a":[2,1]}],"properties":{"a":{)" + of_a + "}}}";
  };
  const std::string one = R"({"a":[1]})", twice = R"({"a":[2,2]})", both = R"({"a":[2,1]})";
  yes(listed(R"("contains":{"const":2})"), {twice, both});
  no(listed(R"("contains":{"const":2})"), {one});
  yes(listed(R"("contains":{"const":2},"minContains":0,"maxContains":1)"), {one, both});
  no(listed(R"("contains":{"const":2},"minContains":0,"maxContains":1)"), {twice});
}

TEST(JsonGrammar, ListedValuesAreHeldAgainstAllThatStandsBeside) {
  const std::pair<const char*, const char*> kOne[] = {
      // {"a":1} alone, of it and {"b":1}.
      {R"({"enum":[{"a":1},{"b":1}],"propertyNames":{"pattern":"^a"}})", R"({"b":1})"},
      {R"({"enum":[{"a":1},{"b":1}],"properties":{"c":{"dependentSchemas":{"b":false}}},"dependencies":{"b":["a"]}})",
       R"({"b":1})"},
      {R"({"enum":[{"a":1},{"a":{"b":1}}],"properties":{"a":{"dependentSchemas":{"b":{"required":["c"]}}}}})",
       R"({"a":{"b":1}})"},
      {R"({"enum":[{"a":1},{"a":2}],"properties":{"a":{"oneOf":[{"minimum":1},{"minimum":2}]}}})", R"({"a":2})"}};
  for (const auto& [schema, other] : kOne) {
    yes(schema, {R"({"a":1})"});
    no(schema, {other});
  }
  yes(R"({"enum":[["a"],["a","b"]],"prefixItems":[true],"unevaluatedItems":false})", {R"(["a"])"});
  no(R"({"enum":[["a"],["a","b"]],"prefixItems":[true],"unevaluatedItems":false})", {R"(["a","b"])"});
  yes(R"({"enum":[["a",1],["a","b"],[1]],"items":[{"type":"string"}],"additionalItems":{"type":"integer"}})",
      {R"(["a",1])"});
  no(R"({"enum":[["a",1],["a","b"],[1]],"items":[{"type":"string"}],"additionalItems":{"type":"integer"}})",
     {R"(["a","b"])", "[1]"});
  yes(R"({"enum":[1,2,3],"oneOf":[{"minimum":2},{"maximum":2}]})", {"1", "3"});
  no(R"({"enum":[1,2,3],"oneOf":[{"minimum":2},{"maximum":2}]})", {"2"});
  EXPECT_THROW(of(R"({"const":1,"oneOf":[{"type":"integer"},{"type":"number"}]})"), Error);
}

TEST(JsonGrammar, Remarks) {
  for (const char* remark :
       {R"("discriminator":{"propertyName":"k","mapping":{}})", R"("x-order":1)", R"("markdownDescription":"*a*")",
        R"("examples":[1])", R"("$comment":"c")", R"("externalDocs":{})", R"("$anchor":"a")", R"("deprecated":true)",
        R"("contentMediaType":"text/plain")", R"("ui:widget":"x")", R"("$id":"https://x/y")", R"("readOnly":true)"}) {
    const std::string s = std::string(R"({"type":"integer",)") + remark + "}";
    yes(s, {"5"});
    no(s, {"\"5\""});
  }
  yes(R"({"type":"string","format":"password","minLength":1})", {R"("x")"});
  yes(R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"discriminator":{"propertyName":"k"},"$defs":{"a":{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},"b":{"type":"object","properties":{"k":{"const":"b"},"n":{"type":"integer"}},"required":["k","n"]}}})",
      {R"({"k": "a"})", R"({"k": "b", "n": 1})"});
}

TEST(JsonGrammar, ReferencesAreDecoded) {
  yes(R"({"$ref":"#/$defs/A%20b","$defs":{"A b":{"type":"integer"}}})", {"5"});
  yes(R"({"$ref":"#/$defs/Page%5Bint%5D","$defs":{"Page[int]":{"type":"integer"}}})", {"5"});
  yes(R"({"$ref":"#/definitions/a~1b%25","definitions":{"a/b%":{"type":"integer"}}})", {"5"});
  yes(R"({"$ref":"#/$defs/%C3%A9","$defs":{"é":{"type":"integer"}}})", {"5"});
  yes(R"({"$ref":"#number","$defs":{"n":{"$anchor":"number","type":"integer"}}})", {"5"});
  yes(R"({"$ref":"#/properties/a","properties":{"a":{"type":"integer"}}})", {});
  // Beside a reference to what recurs.
  const std::string list =
      R"({"$ref":"#/$defs/n","required":["next"],"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}}})";
  yes(list, {R"({"v": 1, "next": null})", R"({"next": {}})"});
  no(list, {R"({"v": 1})", "{}"});
  // Merged with itself over and over.
  const std::string self =
      R"({"type":"object","properties":{"a":{"$ref":"#","maxProperties":1}},"additionalProperties":false})";
  yes(self, {"{}", R"({"a": {"a": {}}})"});
}

TEST(JsonGrammar, CountsOfAnySize) {
  const std::string s = R"({"type":"string","minLength":4000,"maxLength":10000})";
  Automaton a = of(s);
  auto text = [](size_t n) { return "\"" + std::string(n, 'x') + "\""; };
  for (size_t n : {4000u, 4001u, 7777u, 9999u, 10000u}) EXPECT_TRUE(a.matches(text(n))) << n;
  for (size_t n : {0u, 1u, 3999u, 10001u}) EXPECT_FALSE(a.matches(text(n))) << n;
  for (int most : {256, 257, 300, 511, 1000}) {
    Automaton b = of(nlohmann::json{{"type", "string"}, {"maxLength", most}}.dump());
    EXPECT_TRUE(b.matches(text(0)) && b.matches(text(1)) && b.matches(text(static_cast<size_t>(most) / 2)) &&
                b.matches(text(static_cast<size_t>(most))));
    EXPECT_FALSE(b.matches(text(static_cast<size_t>(most) + 1)));
  }
  yes(R"({"type":"string","maxLength":1000000000})", {R"("abc")"});
}

TEST(JsonGrammar, ObjectsOfSomeSize) {
  const std::string map =
      R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})";
  yes(map, {R"({"a": 1})", R"({"a": 1, "b": 2})"});
  no(map, {"{}", R"({"a": 1, "b": 2, "c": 3})"});
  const std::string some =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"required":["b"],"minProperties":2,"maxProperties":2})";
  yes(some, {R"({"a": 1, "b": 2})", R"({"b": 2, "c": 3})"});
  no(some, {R"({"b": 2})", R"({"a": 1, "c": 2})", R"({"a": 1, "b": 2, "c": 3})"});
  const std::string open =
      R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"},"minProperties":2})";
  yes(open, {R"({"a": 1, "b": "x"})", R"({"c": "", "b": "x"})"});
  no(open, {R"({"a": 1})", R"({"b": "x", "a": "y"})"});  // a declared name is no other one
  yes(R"({"type":"object","required":["a"]})", {R"({"a": [1]})"});
  no(R"({"type":"object","required":["a"]})", {"{}"});
  yes(R"({"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false})",
      {R"({"x_1": 1})", "{}"});
  no(R"({"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false})",
     {R"({"y": 1})", R"({"x_1": ""})"});
  yes(R"({"type":"object","propertyNames":{"maxLength":2},"additionalProperties":{"type":"integer"}})",
      {R"({"ab": 1})"});
  no(R"({"type":"object","propertyNames":{"maxLength":2},"additionalProperties":{"type":"integer"}})",
     {R"({"abc": 1})"});
}

TEST(JsonGrammar, ListsWithoutRepetition) {
  const std::string s = R"({"type":"array","items":{"enum":["r","g","b"]},"uniqueItems":true,"minItems":1})";
  yes(s, {R"(["r"])", R"(["b", "r", "g"])"});
  no(s, {"[]", R"(["r", "r"])", R"(["r", "g", "r"])"});
  yes(R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})", {"[]", "[true,false]"});
  no(R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})", {"[true,true]"});
  // Places of few values: what a later one needs is left to it, and the list ends before one that can have none.
  const std::string places =
      R"({"type":"array","prefixItems":[{"enum":[1,2]},{"type":"string"},{"const":1}],"uniqueItems":true,"items":{"type":"null"}})";
  yes(places, {R"([2, "a", 1])", R"([2, "", 1, null])"});
  no(places, {R"([1, "a", 1])", R"([1, "a"])", R"([2, "a", 1, null, null])"});
  yes(R"({"type":"array","prefixItems":[{"const":1},{"const":1}],"uniqueItems":true})", {"[1]"});
  yes(R"({"type":"array","prefixItems":[{"enum":[1,2]},{"const":1}]})", {"[1, 1]", "[2, 1]"});
}

// What a constraint takes, token by token; tokens are bytes here.
bool taken(const std::string& schema, const std::string& text) {
  const auto c = grammar_constraint(std::make_shared<Automaton>(of(schema)));
  for (const char b : text) {
    const auto id = static_cast<int32_t>(static_cast<unsigned char>(b));
    const auto mask = c->allowed();
    if (!((mask[static_cast<size_t>(id) / 64] >> (id % 64)) & 1) || !c->takes(id)) return false;
    c->accept(id);
  }
  c->allowed();
  return c->complete();
}

TEST(GrammarConstraint, ValuesAndKeysThatDiffer) {
  const std::string numbers = R"({"type":"array","items":{"type":"number"},"uniqueItems":true})";
  EXPECT_TRUE(taken(numbers, "[1,2, 12]"));
  for (const char* again : {"[1,1]", "[1, 2,1]", "[1,1.0]", "[10,1e1]"}) EXPECT_FALSE(taken(numbers, again)) << again;
  const std::string objects =
      R"({"type":"object","properties":{"l":{"type":"array","items":{"type":"object"},"uniqueItems":true},"m":{"type":"array"}}})";
  EXPECT_TRUE(taken(objects, R"({"l":[{"a":1},{"a":2}],"m":[1,1]})"));
  EXPECT_FALSE(taken(objects, R"({"l":[{"a":1,"b":2},{"b":2,"a":1}]})"));
  EXPECT_FALSE(taken(objects, R"({"l":[{"a":[1,{"b":2}]},{"a":[1.0,{"b":2e0}]}]})"));
  const std::string large =
      R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":200000000000000000000},"uniqueItems":true})";
  EXPECT_TRUE(taken(large, "[123456789012345678901,123456789012345678902,9007199254740993,9007199254740992]"));
  EXPECT_FALSE(taken(large, "[123456789012345678901,123456789012345678901]"));
  EXPECT_TRUE(taken("{}", R"({"a":1,"b":{"a":"a"}})"));
  EXPECT_FALSE(taken("{}", R"({"a":1,"a":2})"));
  EXPECT_FALSE(taken("{}", R"({"a":1,"\u0061":2})"));
  EXPECT_TRUE(taken("{}", R"(["a","a"])"));
}

// Of few values that have to differ all may stand already: no comma is taken then, and no beginning that can only end
// as one of them.
TEST(GrammarConstraint, NoTextIsLedWhereNothingGoesOn) {
  std::mt19937 random(7);
  for (
      const char* schema :
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":0,"maximum":12}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":-1,"maximum":1},"minItems":2})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"string","pattern":"^[ab]c?$"}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"null"}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"string","maxLength":0}})",
       R"({"type":"array","uniqueItems":true,"items":{"enum":[1,1.0,"a"]}})",
       R"({"type":"array","uniqueItems":true,"items":{"anyOf":[{"type":"boolean"},{"enum":[true,5]}]}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"array","maxItems":1,"items":{"type":"boolean"}}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}})",
       R"({"type":"array","uniqueItems":true,"prefixItems":[{"const":1}],"items":{"enum":[1,2]}})",
       R"({"type":"array","uniqueItems":true,"prefixItems":[{"enum":[1,2]},{"const":1}]})",
       R"({"type":"array","uniqueItems":true,"prefixItems":[{"enum":[1,2,3]},{"type":"string","maxLength":3},{"enum":["a",2,1]},{"enum":[2,1]}],"minItems":4})",
       R"({"type":"object","propertyNames":{"enum":["p","q"]},"additionalProperties":{"type":"null"}})",
       R"({"type":"object","propertyNames":{"const":"p"},"minProperties":1,"additionalProperties":{"type":"null"}})",
       R"({"type":"object","patternProperties":{"^[ab]{1,2}$":{"type":"null"}},"additionalProperties":false})",
       R"({"type":"object","properties":{"p":{"type":"null"}},"propertyNames":{"enum":["p","q"]},"additionalProperties":{"type":"boolean"}})",
       R"({"type":"array","maxItems":2,"items":{"type":"array","uniqueItems":true,"items":{"enum":["x","xy","y"]}}})",
       R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":["x y","x z"," "]}})",
       R"({"type":"object","properties":{"a":{"type":"null"},"b c":{"type":"null"}},"required":["a","b c"],"propertyNames":{"enum":["a","b c","d e"]},"additionalProperties":{"type":"null"}})",
       R"({"type":"object","propertyNames":{"enum":["p q"," r"]},"minProperties":2,"additionalProperties":{"type":"null"}})"})
    for (int n = 0; n < 12; ++n) {
      const auto automaton = std::make_shared<Automaton>(of(schema));
      const auto c = grammar_constraint(automaton);
      std::string text;
      while (text.size() < 400) {
        const auto span = c->allowed();
        const std::vector<uint64_t> mask(span.begin(), span.end());
        std::string can;
        for (int b = 0; b < 256; ++b)
          if ((mask[static_cast<size_t>(b) / 64] >> (b % 64)) & 1 && b != '\n' && c->takes(b))
            can += static_cast<char>(b);
        if (can.empty()) break;
        const bool on = can.find(',') != std::string::npos && n % 4 != 3;  // as long as it can be
        const char next = on ? ',' : can[random() % can.size()];
        c->accept(static_cast<unsigned char>(next));
        text += next;
      }
      c->allowed();
      EXPECT_TRUE(c->complete()) << schema << " " << text;
      const auto j = nlohmann::json::parse(text, nullptr, false);
      ASSERT_FALSE(j.is_discarded()) << schema << " " << text;
      if (j.is_array() && std::string(schema).find("maxItems\":2") == std::string::npos) {
        EXPECT_EQ(std::set<nlohmann::json>(j.begin(), j.end()).size(), j.size()) << text;
      }
    }
  EXPECT_TRUE(
      taken(R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":0,"maximum":2}})", "[2,0,1]"));
  EXPECT_FALSE(
      taken(R"({"type":"object","properties":{"z":{"type":"null"}},"propertyNames":{"enum":["p"]}})", R"({"z":null})"));
  EXPECT_THROW(of(R"({"type":"object","required":["z"],"propertyNames":{"enum":["p"]}})"), Error);
  EXPECT_THROW(of(R"({"type":"object","minProperties":3,"propertyNames":{"enum":["p","q"]}})"), Error);
}

TEST(GrammarConstraint, FullTablesBeginAnew) {
  const auto shared = std::make_shared<Automaton>(of("{}"));
  // Every text below makes states of its own; together they are far more than the tables hold.
  for (int n = 0; n < 6000; ++n) {
    const auto c = grammar_constraint(shared);
    std::string text;
    for (int bit = 0; bit < 13; ++bit) text += n >> bit & 1 ? "[" : "{\"k\":";
    for (const char b : text) {
      c->accept(static_cast<int32_t>(static_cast<unsigned char>(b)));
      if (n % 500 == 0) {
        EXPECT_FALSE(c->allowed().empty());
      }
    }
  }
  EXPECT_GT(shared->generation(), 0);
  const auto c = grammar_constraint(shared);
  EXPECT_THROW(c->accept('x'), Error);  // an error of its own, not the end of everything
}

TEST(GrammarConstraint, DeadEndsAreNeverEntered) {
  // After "a" nothing can complete the second alternative, whose member has no value.
  const std::string s =
      R"({"anyOf":[{"type":"object","properties":{"a":{"$ref":"#/$defs/never"}},"required":["a"],"additionalProperties":false},{"type":"integer"}],"$defs":{"never":{"$ref":"#/$defs/never"}}})";
  Automaton a = of(s);
  EXPECT_EQ(a.next(a.start(), '{'), Automaton::kDead);
  EXPECT_TRUE(a.matches("5"));
}

TEST(JsonGrammar, BadSchemasAreRefused) {
  for (const char* s : {R"({"type":"strng"})",
                        R"({"type":5})",
                        R"({"type":[]})",
                        R"(false)",
                        R"(5)",
                        R"({"enum":[]})",
                        R"({"properties":3})",
                        R"({"required":["x"],"properties":{},"additionalProperties":false})",
                        R"({"$ref":"http://x/y"})",
                        R"({"$ref":"#/nowhere"})",
                        R"({"$ref":"#nonsense"})",
                        R"({"not":{}})",
                        R"({"type":"array","minItems":-1})",
                        R"({"type":"array","minItems":3,"maxItems":1})",
                        R"({"type":"string","maxLength":1.5})",
                        R"({"type":"string","minLength":1e30})",
                        R"({"type":"string","maxLenght":5})",
                        R"({"contains":{"type":"integer"}})",
                        R"({"type":"string","pattern":"("})",
                        R"x({"type":"string","pattern":"a(?=a)"})x",
                        R"x({"type":"string","pattern":"(?<=a)b"})x",
                        R"x({"type":"string","pattern":"^(?!a)a$"})x",
                        R"({"type":"string","pattern":"\\ud800"})",
                        R"({"type":"string","pattern":"\\1"})",
                        R"({"type":"string","pattern":"a{50000}"})",
                        R"({"type":"string","pattern":"[z-a]"})",
                        R"({"type":"string","pattern":"*"})",
                        R"({"type":"integer","minimum":3,"maximum":1})",
                        R"({"type":"number","multipleOf":0})",
                        R"({"type":"number","multipleOf":0.12345})",
                        R"({"oneOf":[{"enum":[1]},{"const":1}]})",
                        R"({"type":"integer","minimum":18446744073709551617,"maximum":18446744073709551616})",
                        R"({"type":"number","minimum":"1"})",
                        R"({"type":"number","minimum":2,"exclusiveMaximum":2})",
                        R"({"anyOf":{}})",
                        R"({"type":"string","format":"zebra"})",
                        R"({"type":"string","nullable":"yes"})",
                        R"({"properties":{"a":true},"allOf":[{"properties":[1]}]})",
                        R"({"allOf":[{"$ref":"#/a~2b"}]})",
                        R"({"required":["a"],"properties":{"a":true},"allOf":[{"required":"a"}]})",
                        R"({"type":"string","$ref":"#/$defs/n","$defs":{"n":{"type":"null"}}})",
                        R"({"type":"array","prefixItems":[true],"items":false,"minItems":2})",
                        R"({"type":"string","format":"email","maxLength":3})",
                        R"({"enum":["a",1],"type":"boolean"})",
                        R"({"const":5,"maximum":4})",
                        R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true,"minItems":3})",
                        R"({"type":"object","minProperties":2,"maxProperties":1})",
                        R"({"type":"string","pattern":"^a+$","maxLength":0})",
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

// Long lists cost what they hold, not its square: each of these took the better part of a minute.
TEST(JsonGrammar, LongListsCostLittle) {
  constexpr int n = 60'000;
  OrderedJson words = OrderedJson::array(), numbers = words, names = words;
  OrderedJson::object_t members;
  for (int i = 0; i < n; ++i) {
    words.push_back("word" + std::to_string(i));
    numbers.push_back(i);
    members.emplace_back("m" + std::to_string(i), 1);
    names.push_back("m" + std::to_string(i));
  }
  OrderedJson others = words, objects = OrderedJson::array();
  others.erase(n - 1);
  for (int i = 0; i < n; ++i) objects.push_back({{"a", i}});
  OrderedJson other_objects = objects;
  other_objects.erase(n - 1);
  OrderedJson repeated = numbers;
  repeated.push_back(0.0);  // as 0 is
  const std::vector<std::pair<OrderedJson, const char*>> schemas = {
      {{{"enum", words}, {"not", {{"enum", others}}}}, "\"word59999\""},
      {{{"enum", objects}, {"not", {{"enum", other_objects}}}}, "{\"a\":59999}"},
      {{{"allOf", {{{"enum", words}}, {{"enum", {"no", "word7"}}}}}}, "\"word7\""},
      {{{"oneOf", {{{"enum", words}}, {{"enum", others}}}}}, "\"word59999\""},
      {{{"enum", {OrderedJson(members), 5}}, {"required", names}, {"maxProperties", 1}}, "5"},
      {{{"enum", {OrderedJson(members), 5}}, {"properties", members}, {"type", "integer"}}, "5"},
      {{{"enum", {repeated, 5}}, {"uniqueItems", true}}, "5"},
  };
  for (const auto& [schema, only] : schemas) {
    const std::clock_t begin = std::clock();
    yes(schema.dump(), {only});
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5) << schema.dump().substr(0, 60);
  }
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

}  // namespace
}  // namespace mxt::serve
