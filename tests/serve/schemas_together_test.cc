// What several schemas demand of one value. The verdicts are jsonschema's, but for members beside declared ones and
// lists shorter than prefixItems, which a grammar leaves out.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/grammar/json_grammar.h"
#include "serve/schemas.h"

namespace mxt::serve {
namespace {

TEST(JsonGrammar, WhatAPartDoesNotDeclareIsAdditionalToIt) {
  const std::string closed =
      R"({"type":"object","allOf":[{"properties":{"a":{"type":"integer"}}},{"additionalProperties":false}]})";
  yes(closed, {"{}"});
  no(closed, {R"({"a":8})"});
  const std::string beside =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"allOf":[{"properties":{"b":true},"additionalProperties":false}]})";
  yes(beside, {"{}", R"({"b":null})"});
  no(beside, {R"({"a":8})"});
  const std::string bounded =
      R"({"type":"object","allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},{"additionalProperties":{"maximum":7}}]})";
  yes(bounded, {R"({"a":7})"});
  no(bounded, {R"({"a":8})"});
  const std::string named =
      R"({"type":"object","allOf":[{"properties":{"ab":{"type":"integer"},"c":{"type":"integer"}}},{"properties":{"d":true},"patternProperties":{"^a":{"maximum":7}},"additionalProperties":false}]})";
  yes(named, {"{}", R"({"ab":7})"});
  no(named, {R"({"ab":8})", R"({"c":1})"});
  const std::string patterns =
      R"({"type":"object","allOf":[{"patternProperties":{"^x$":{"type":["integer","string"]}},"additionalProperties":false},{"additionalProperties":{"type":"string"}}]})";
  yes(patterns, {"{}", R"({"x":"1"})"});
  no(patterns, {R"({"x":1})", R"({"y":"1"})"});
  const std::string declared =
      R"({"type":"object","allOf":[{"properties":{"ab":{"type":["integer","string"]},"c":true},"required":["ab"],"additionalProperties":false},{"patternProperties":{"^a":{"type":"string"}}}]})";
  yes(declared, {R"({"ab":"x"})"});
  no(declared, {R"({"ab":1})", R"({"ab":"x","ax":"y"})"});
  const std::string places =
      R"({"type":"array","allOf":[{"prefixItems":[{"enum":[1,2]},{"enum":[2,3]}]},{"items":{"enum":[2,4]}}]})";
  yes(places, {"[2,2]", "[2,2,4]"});
  no(places, {"[1,2]", "[2,3]", "[2,2,3]"});
  const std::string short_list =
      R"({"type":"array","items":{"enum":[2]},"allOf":[{"prefixItems":[{"enum":[2]},{"enum":[3]}]}]})";
  yes(short_list, {"[2]"});
  no(short_list, {"[2,3]", "[2,2]"});
}

TEST(SchemasTogether, NullableIsOneTypeMoreToThePartThatSaysIt) {
  const std::string text = R"({"allOf":[{"type":"string","nullable":true},)";
  for (const char* other :
       {R"({"type":"string"}]})", R"({"type":["string","integer"]}]})", R"({"enum":["a","b"]}]})"}) {
    yes(text + other, {R"("a")"});
    no(text + other, {"null"});
  }
  for (const char* other : {R"({"maxLength":3}]})", R"({"type":["string","null"]}]})", R"({"enum":["a",null]}]})",
                            R"({"type":"string","nullable":true}]})"})
    yes(text + other, {"null", R"("a")"});
  no(R"({"type":"string","allOf":[{"type":"string","nullable":true}]})", {"null"});
  // Beside allOf it is said of the whole, as generators write it of a $ref.
  yes(R"({"nullable":true,"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}})", {"null", R"("x")"});
}

TEST(JsonGrammar, AListOfMoreDifferentElementsThanThereAreIsRefused) {
  const auto refused = [](const std::string& rest) {
    const std::string schema = R"({"type":"array","uniqueItems":true,)" + rest + "}";
    EXPECT_THROW(of(schema), NothingLeft) << schema;
  };
  refused(R"("minItems":11,"items":{"type":"integer","minimum":1,"maximum":10})");
  refused(R"("minItems":10,"items":{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10})");
  refused(R"("minItems":10,"items":{"type":"integer","minimum":0,"maximum":9,"exclusiveMaximum":true})");
  refused(
      R"("minItems":3,"items":{"type":"integer","minimum":-9,"maximum":9,"multipleOf":9.0},"maxItems":3,"allOf":[{"items":{"minimum":0}}])");
  refused(R"("minItems":4,"items":{"anyOf":[{"type":"boolean"},{"$ref":"#/$defs/n"}]},"$defs":{"n":{"type":"null"}})");
  refused(R"("minItems":4,"items":{"type":"boolean","nullable":true})");
  refused(R"("minItems":12,"items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,11.0]})");
  refused(R"("minItems":2,"prefixItems":[{"const":1},{"const":1}])");
  refused(R"("minItems":4,"prefixItems":[{"const":1}],"items":{"enum":[1,2,3]})");
  yes(R"({"type":"array","uniqueItems":true,"minItems":3,"items":{"type":"integer","minimum":-9,"maximum":9,"multipleOf":9}})",
      {"[-9,0,9]"});
  yes(R"({"type":"array","uniqueItems":true,"minItems":10,"items":{"type":"integer","minimum":1,"maximum":10}})",
      {"[1,2,3,4,5,6,7,8,9,10]"});
  // As long as can be, where more is not demanded: no answer begins an element that cannot be another one.
  no(R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":9}})",
     {"[1,2,3,4,5,6,7,8,9,1]"});
  const std::string twice = R"({"type":"array","uniqueItems":true,"prefixItems":[{"const":1},{"const":1}]})";
  yes(twice, {"[1]"});
  no(twice, {"[1,1]"});
  // References in a circle count nothing.
  yes(R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/a"}}]}}})",
      {"[null,[]]"});
}

// A part speaks of members that it does not declare itself: not of one that another part's pattern names, too.
TEST(SchemasTogether, APatternLeavesToOthersWhatTheyDeclare) {
  const std::string two =
      R"({"type":"object","allOf":[{"patternProperties":{"^x":{"type":"integer"}}},{"properties":{"xa":{"minimum":2,"type":"number"},"s":true},"additionalProperties":{"maximum":7,"type":"number"}}]})";
  yes(two, {R"({"xa":9})", R"({"s":null,"xb":7})", R"({"q":0.5})", R"({"xa":2,"xb":1,"q":7})"});
  no(two, {R"({"xa":1})", R"({"xa":9.5})", R"({"xb":8})", R"({"xb":0.5})", R"({"q":8})", R"({"q":"s"})"});
  const std::string closed =
      R"({"type":"object","required":["xa"],"allOf":[{"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":{"type":"null"}},{"properties":{"xa":{"enum":[1,"s"]},"q":true},"additionalProperties":false}]})";
  yes(closed, {R"({"xa":1})", R"({"xa":1,"q":null})"});
  no(closed, {R"({"xa":"s"})", R"({"xa":1,"xb":1})", R"({"xa":1,"q":1})", R"({"q":null})", R"({"xa":1,"r":null})"});
  const std::string required =
      R"({"type":"object","required":["xb"],"allOf":[{"patternProperties":{"^x":{"type":"integer"}}},{"additionalProperties":{"enum":[1,"s"]}}]})";
  yes(required, {R"({"xb":1})"});
  no(required, {"{}", R"({"xb":"s"})", R"({"xb":2})"});
  // A third that declares what the two name and bound.
  const std::string three =
      R"({"type":"object","allOf":[{"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":true},{"properties":{"q":true},"additionalProperties":{"maximum":7}},{"properties":{"xa":{"minimum":1},"q":{"const":0}},"additionalProperties":true}]})";
  yes(three, {R"({"q":0,"xa":7})", R"({"xb":0})"});
  no(three, {R"({"xa":8})", R"({"xa":0})", R"({"xb":8})", R"({"q":1})"});
  const std::string listed =
      R"({"enum":[{"xa":9},{"xb":9},{"xb":"s"},{"xb":1}],"allOf":[{"patternProperties":{"^x":{"type":"integer"}}},{"properties":{"xa":true},"additionalProperties":{"maximum":7}}]})";
  yes(listed, {R"({"xa":9})", R"({"xb":1})"});
  no(listed, {R"({"xb":9})", R"({"xb":"s"})"});
}

TEST(SchemasTogether, PatternsOfBothHold) {
  const std::string both =
      R"({"type":"object","allOf":[{"patternProperties":{"^x":{"type":"integer"},"^y":{"type":"boolean"}},"additionalProperties":false},{"patternProperties":{"^x":{"maximum":7},"z$":{"enum":[5,true]}},"additionalProperties":{"enum":[true,1]}}]})";
  yes(both, {"{}", R"({"xa":7})", R"({"ya":true})", R"({"xa":1,"ya":true})"});
  no(both, {R"({"xa":8})", R"({"ya":false})", R"({"az":5})", R"({"q":1})"});
  const std::string declared =
      R"({"type":"object","allOf":[{"properties":{"xz":{"minimum":5}},"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":true},{"patternProperties":{"z$":{"maximum":6}},"additionalProperties":{"type":"null"}}]})";
  yes(declared, {R"({"xz":5})", R"({"az":6})", R"({"q":null})"});
  no(declared, {R"({"xz":4})", R"({"xz":7})", R"({"xz":5.5})", R"({"xa":1})", R"({"q":1})"});
}

// What two schemas together are kept with, in a schema that came from outside.
TEST(SchemasTogether, AKeyOfOursIsNoKeyword) {
  for (const char* given : {R"({"type":"object","\u0001patternProperties":5})",
                            R"({"type":"array","items":{"allOf":[{"\u0001patternProperties":{"^a":false}}]}})"})
    try {
      JsonGrammar().schema(OrderedJson::parse(given));
      ADD_FAILURE() << given;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("\\u0001patternProperties\" is not supported"), std::string::npos)
          << e.what();
    }
}

TEST(SchemasTogether, EqualValuesAreEqual) {
  yes(R"({"allOf":[{"enum":[{"a":1,"b":2},3]},{"enum":[{"b":2,"a":1.0}]}]})", {R"({"a":1,"b":2})"});
  yes(R"({"allOf":[{"const":1},{"const":1.0}]})", {"1"});
  yes(R"({"allOf":[{"enum":[100000000000000000000,9007199254740993]},{"enum":[1e20,9007199254740992]}]})",
      {"100000000000000000000"});
  no(R"({"allOf":[{"enum":[1,9007199254740993]},{"enum":[1,9007199254740992.0]}]})", {"9007199254740993"});
  yes(R"({"const":{"a":[{"c":1,"d":2}]},"properties":{"a":{"const":[{"d":2,"c":1}]}}})", {R"({"a":[{"c":1,"d":2}]})"});
  // Two elements that are one.
  for (const char* schema : {R"({"enum":[[1,1.0],[[1],[1.0]],[{"a":1,"b":2},{"b":2,"a":1}]],"uniqueItems":true})",
                             R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":[1,1.0]}})"})
    EXPECT_THROW(of(schema), Error) << schema;
}

TEST(SchemasTogether, OfFewItemsThoseThatAreAllowed) {
  const std::string no_boolean = R"({"items":{"type":"boolean","allOf":[{"type":"object"}]},"uniqueItems":true})";
  yes(no_boolean, {"[]"});
  no(no_boolean, {"[true]"});
  yes(R"({"items":{"type":"boolean","anyOf":[{"const":true},{"type":"null"}]},"uniqueItems":true})", {"[true]"});
  no(R"({"items":{"type":"boolean","anyOf":[{"const":true},{"type":"null"}]},"uniqueItems":true})", {"[false]"});
}

TEST(SchemasTogether, AListEndsBeforeWhatCannotBe) {
  const std::string one = R"({"type":"array","prefixItems":[{"type":"integer"},false,{"type":"null"}],"items":true})";
  yes(one, {"[1]"});
  no(one, {"[1,2]", "[1,2,null]"});
  yes(R"({"type":"array","prefixItems":[{"type":"integer","enum":["a"]}]})", {"[]"});
  EXPECT_THROW(of(R"({"type":"array","prefixItems":[{"type":"integer"},false],"minItems":2})"), Error);
  const std::string no_more =
      R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"minimum":2,"maximum":1}})";
  yes(no_more, {"[1]"});
  no(no_more, {"[1,1]"});
}

TEST(SchemasTogether, MembersThatCannotBeTakeNoOthersWithThem) {
  const std::string named =
      R"({"type":"object","properties":{"a":true},"patternProperties":{"b$":{"type":"integer"}},"additionalProperties":{"type":"string","minLength":2,"maxLength":1}})";
  yes(named, {R"({"a":"x","b":1})", R"({"xb":1})"});
  no(named, {R"({"b":"x"})", R"({"c":"xx"})"});
  yes(R"({"type":"object","patternProperties":{"^[a-c]$":true},"additionalProperties":true,"propertyNames":{"enum":["c"]}})",
      {R"({"c":"y"})"});
  // Of few names those that are declared come first, or not at all.
  const std::string few =
      R"({"type":"object","properties":{"a":true},"additionalProperties":true,"minProperties":2,"propertyNames":{"enum":["x","a","y"]}})";
  yes(few, {R"({"a":1,"x":2})", R"({"x":1,"y":2})", R"({"a":1,"x":2,"y":3})"});
  const std::string pair =
      R"({"type":"object","properties":{"a":true},"additionalProperties":true,"minProperties":2,"propertyNames":{"enum":["x","a"]}})";
  yes(pair, {R"({"a":1,"x":2})"});
  Automaton a = of(pair);
  EXPECT_EQ(a.walk(a.start(), R"({"x)"), Automaton::kDead);
  for (const char* without : {R"({"type":"object","not":{"required":["x"]}})", R"({"properties":{"x":false}})",
                              R"({"type":"object","dependentRequired":{"x":["y"]}})"}) {
    yes(without, {"{}", R"({"c":3})"});
    no(without, {R"({"x":1})", R"({"c":1,"x":1})"});
  }
  yes(R"({"type":"object","dependentRequired":{"x":["y"]}})", {R"({"x":1,"y":2})"});
}

// Lists whose first elements several parts speak of, and what a member brings with it in several.
TEST(SchemasTogether, PlacesAndDependentsOfSeveralPartsHoldTogether) {
  const std::string places =
      R"({"type":"array","allOf":[{"prefixItems":[{"enum":[1,2]}],"items":{"type":"integer"}},{"prefixItems":[{"enum":[2,3]},{"enum":[4,"s"]}],"items":{"enum":[5,"t"]}}]})";
  yes(places, {"[2,4]", "[2,4,5,5]"});
  no(places, {"[1]", "[3]", R"([2,"s"])", R"([2,4,"t"])", "[2,5]"});
  const std::string closed =
      R"({"type":"array","allOf":[{"prefixItems":[{"type":"integer"}],"items":false},{"prefixItems":[{"minimum":3},{"type":"null"}]}]})";
  yes(closed, {"[3]"});
  no(closed, {"[2]", "[3,null]"});
  const std::string never =
      R"({"type":"array","allOf":[{"prefixItems":[true,{"type":"integer"},true]},{"prefixItems":[true,{"type":"null"}]}]})";
  yes(never, {"[1]"});
  no(never, {"[1,null]", "[1,1]"});
  const std::string before_2020 =
      R"({"type":"array","items":[{"enum":[1,2]},{"type":"integer"}],"additionalItems":{"type":"string"},"allOf":[{"items":[{"enum":[2]}],"additionalItems":{"enum":[7,"x"]}}]})";
  yes(before_2020, {"[2,7]", R"([2,7,"x"])"});
  no(before_2020, {"[1]", "[2,8]", R"([2,"x"])", "[2,7,7]"});
  const std::string brings =
      R"({"type":"object","properties":{"a":true,"b":true,"c":{"type":"integer"}},"additionalProperties":false,"allOf":[{"dependentRequired":{"a":["b"]}},{"dependentRequired":{"a":["c"],"b":["c"]}}]})";
  yes(brings, {"{}", R"({"c":1})", R"({"a":0,"b":0,"c":1})", R"({"b":0,"c":1})"});
  no(brings, {R"({"a":0})", R"({"a":0,"b":0})", R"({"a":0,"c":1})", R"({"b":0})"});
  for (const char* key : {"dependentSchemas", "dependencies"}) {
    const std::string schemas = fmt::format(
        R"({{"type":"object","properties":{{"a":true,"c":{{"type":"integer"}}}},"additionalProperties":false,"allOf":[{{"{0}":{{"a":{{"required":["c"]}}}}}},{{"{0}":{{"a":{{"properties":{{"c":{{"minimum":5}}}}}}}}}}]}})",
        key);
    yes(schemas, {"{}", R"({"c":1})", R"({"a":0,"c":5})"});
    no(schemas, {R"({"a":0})", R"({"a":0,"c":4})"});
  }
  const std::string mixed =
      R"({"type":"object","properties":{"a":true,"c":{"type":"integer"}},"additionalProperties":false,"allOf":[{"dependencies":{"a":["c"]}},{"dependencies":{"a":{"properties":{"c":{"minimum":5}}}}}]})";
  yes(mixed, {"{}", R"({"a":0,"c":5})"});
  no(mixed, {R"({"a":0})", R"({"a":0,"c":4})"});
}

// More elements than there are different ones: said before an answer begins, which would come to no end.
TEST(SchemasTogether, ListsOfOneValueAreNoLongerThanTheyCanBe) {
  for (const char* items : {R"({"const":10})", R"({"type":"null"})", R"({"type":"number","const":{"a":1}})"}) {
    const std::string list = fmt::format(R"({{"type":"array","uniqueItems":true,"items":{})", items);
    EXPECT_THROW(of(list + R"(,"minItems":2})"), Error) << items;
  }
  const std::string one = R"({"type":"array","uniqueItems":true,"items":{"const":10}})";
  yes(one, {"[]", "[10]"});
  no(one, {"[10,10]"});
  EXPECT_THROW(
      of(R"({"allOf":[{"type":"array","items":{"type":"number"},"minItems":3},{"items":{"const":10},"uniqueItems":true}]})"),
      Error);
  const std::string named = R"({"type":"object","additionalProperties":true,"propertyNames":{"enum":["ab",5]}})";
  yes(named, {"{}", R"({"ab":1})"});
  no(named, {R"({"5":1})", R"({"":1})"});
}

}  // namespace
}  // namespace mxt::serve
