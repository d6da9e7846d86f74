// Texts of a pattern or a format.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/schemas.h"

namespace mxt::serve {
namespace {

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

TEST(JsonGrammar, APatternThatNothingMatchesIsNamedWithItsPlace) {
  const auto refused = [](const char* schema) {
    try {
      of(schema);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(R"({"type":"string","pattern":"(?=a)b"})"), "#/pattern: no text is as all of it demands");
  EXPECT_EQ(refused(R"({"type":"object","properties":{"k":{"type":"string","pattern":"^(?!b)b$"}},"required":["k"]})"),
            "#/properties/k/pattern: no text is as all of it demands");
  EXPECT_EQ(refused(R"({"enum":["a","b"],"pattern":"(?=a)b"})"),
            "#: no value of enum is what stands beside it demands");
  // What is not read is named with its place too, wherever the pattern stands.
  const std::string group = "a group that begins with \"(?<=\" is not supported here";
  EXPECT_EQ(refused(R"({"enum":["a","b"],"pattern":"(?<=a)b"})"), "#/pattern: " + group);
  EXPECT_EQ(refused(R"({"properties":{"a":{}},"patternProperties":{"(?<=a)b":{}}})"), "#/patternProperties: " + group);
  // The rest of the schema holds.
  yes(R"({"type":"string","pattern":"^((?:x)|y)$|(?=a)b"})", {R"("x")", R"("y")"});
  no(R"({"type":"string","pattern":"(?=a)b|^c$"})", {R"("b")", R"("ab")"});
  yes(R"({"type":"string","pattern":"(?=a)b|^c$"})", {R"("c")"});
  yes(R"({"properties":{"a":{"type":"integer"}},"patternProperties":{"(?=a)b":{}}})", {R"({"a":1})", "{}"});
  yes(R"({"anyOf":[{"type":"string","pattern":"(?=a)b"},{"type":"null"}]})", {"null"});
}

TEST(JsonGrammar, PatternsAsTheClientsLibrariesWriteThem) {
  auto s = [](const std::string& p) { return nlohmann::json{{"type", "string"}, {"pattern", p}}.dump(); };
  const std::string mail =  // zod
      s(R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)");
  yes(mail, {R"("a.b@x-y.org")", R"("a@b.cd")"});
  no(mail, {R"(".a@b.cd")", R"("a..b@b.cd")", R"("\u002ea@b.cd")", R"("a@b")"});
  const std::string decimal = s(R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)");  // pydantic
  yes(decimal, {R"("1.50")", R"("-0.5")", R"("+7")"});
  no(decimal, {R"("")", R"("-")", R"(".")", R"("1e5")"});
  const std::string password = s(R"(^(?=.*[A-Z])(?=.*\d).{4,6}$)");
  yes(password, {R"("aB1c")"});
  no(password, {R"("ab1c")", R"("aBcd")", R"("B1c")"});
  const std::string either = s("^a|b$");
  yes(either, {R"("ax")", R"("xb")"});
  no(either, {R"("xa")", R"("bx")"});
  yes(s("^$|^x{2}$"), {R"("")", R"("xx")"});
  yes(s(R"(^[\u4e00-\u9fa5]{1,2}$)"), {R"("中文")"});
  no(s(R"(^[\u4e00-\u9fa5]{1,2}$)"), {R"("a")", R"("龦")", R"("中文中")"});
  yes(s("^[^é-ü]$"), {R"("a")", R"("þ")", R"("中")"});
  no(s("^[^é-ü]$"), {R"("é")", R"("ü")", R"("ö")"});
  yes(s(R"(\A(?P<year>\d{4})-(?<month>\d\d)\Z)"), {R"("2024-02")"});
  yes(s("(?i)^ab$"), {R"("aB")", R"("AB")"});
  no(s("(?i)^ab$"), {R"("ac")"});
  yes(s(R"(^\x41\u0042$)"), {R"("AB")"});
  yes(s(R"(^[\s\S]{2}$)"), {R"("é\n")"});
}

TEST(JsonGrammar, LongTextsOfAPatternOrFormat) {
  auto s = [](const char* key, const char* value, int64_t least, int64_t most) {
    return nlohmann::json{{"type", "string"}, {key, value}, {"minLength", least}, {"maxLength", most}}.dump();
  };
  const std::string label = s("pattern", "^[a-z0-9-]+$", 3, 1000);
  yes(label, {R"("a-b")", "\"" + std::string(1000, 'x') + "\""});
  no(label, {R"("ab")", "\"" + std::string(1001, 'x') + "\"", R"("a_b")"});
  // What cannot be counted out is shorter than it might be, never longer.
  const std::string huge = s("pattern", "^[a-z]+(\\.[a-z]+)*$", 5, 1'000'000);
  yes(huge, {R"("ab.cd")", "\"" + std::string(1000, 'x') + "\""});
  no(huge, {R"("a.b")", R"("ab.cd.")"});
  yes(s("format", "uri", 1, 2083), {R"("https://a.example.org/b?c=d#e")"});  // pydantic's HttpUrl
  no(s("format", "uri", 1, 2083), {R"("https://1.2.3.4")", R"("")"});
  yes(s("format", "email", 3, 254), {R"("a.b@c.de")"});
  yes(s("format", "uri", 0, 30), {R"("https://a.example.org/b")"});
  no(s("format", "uri", 0, 30), {R"("https://a.example.org/b/c/d/e/f")"});
  yes(s("pattern", "^é+$", 2, 3), {R"("éé")", R"("ééé")"});
  no(s("pattern", "^é+$", 2, 3), {R"("é")", R"("éééé")"});
  const std::string address = s("pattern", "^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$", 0, 20);
  yes(address, {R"("a@b.c")", R"("é@ü.ö")"});
  no(address, {R"("a@b")", R"("a b@c.d")"});
  yes(s("pattern", "b", 2, 3), {R"("ab")", R"("\"b")", R"("\u00e9b")"});
  no(s("pattern", "b", 2, 3), {R"("b")", R"("aaab")", R"("\"\"\"b")"});
  yes(R"({"type":"string","maxLength":100000000000000000000,"minLength":1.0})", {R"("a")"});
}

TEST(JsonGrammar, FormatsOfPydantic) {
  auto s = [](const char* format) { return nlohmann::json{{"type", "string"}, {"format", format}}.dump(); };
  yes(s("uuid4"), {R"("3f2504e0-4f89-41d3-9a0c-0305e82c3301")"});
  no(s("uuid4"), {R"("3f2504e0-4f89-11d3-9a0c-0305e82c3301")"});
  no(s("date"), {R"("0000-01-01")", R"("0000-02-29")"});
  yes(s("date"), {R"("0004-02-29")", R"("1000-01-01")", R"("2030-06-10")"});
  yes(s("ipv4network"), {R"("10.0.0.1")"});
  yes(s("base64"), {R"("YQ==")", R"("")", R"("YWJj")"});
  no(s("base64"), {R"("YR==")", R"("YQ=")"});
  yes(s("uri-reference"), {R"("http://a.bc/d")"});
  yes(s("json-pointer"), {R"("/a~1b/0")", R"("")"});
  // A pattern says what a name means that is not known here.
  const std::string own = R"({"type":"string","format":"nanoid","pattern":"^[a-z]{3}$"})";
  yes(own, {R"("abc")"});
  no(own, {R"("ab")", R"("ABC")"});
}

TEST(JsonGrammar, PatternsByUnicodesCategories) {
  auto s = [](const std::string& p) { return nlohmann::json{{"type", "string"}, {"pattern", p}}.dump(); };
  const std::string name = s(R"(^\p{Lu}[\p{Ll}\p{M}'’-]*( \p{L}+)?$)");
  yes(name, {R"("Ana")", R"("Łukasz")", R"("Ωmega")", R"("Jean-luc Ñandú")", R"("D'arc 李")", R"("𐐀𐐨")"});
  no(name, {R"("ana")", R"("łukasz")", R"("A1")", R"("Ana ")", R"("李")", R"("𐐨")", "\"A\xed\xa0\x80\""});
  yes(s(R"(^\pN{2}\p{Nd}$)"), {R"("123")", R"("٣½३")", R"("Ⅷ²7")"});
  no(s(R"(^\pN{2}\p{Nd}$)"), {R"("12a")", R"("12½")"});
  yes(s(R"(^\P{L}+$)"), {R"("1 €!")", R"("–\n")", R"("😀")"});
  no(s(R"(^\P{L}+$)"), {R"("1x")", R"("é")", R"("中")"});
  yes(s(R"(^[^\p{L}\p{N}\s]$)"), {R"("€")", R"("_")", R"("‽")"});
  no(s(R"(^[^\p{L}\p{N}\s]$)"), {R"("a")", R"("ß")", R"("٣")", R"(" ")"});
  yes(s(R"(^[\P{L}x]$)"), {R"("x")", R"("7")", R"("😀")"});
  no(s(R"(^[\P{L}x]$)"), {R"("y")", R"("é")"});
  yes(s(R"(^\p{Sc}\p{General_Category=Decimal_Number}+\p{gc=Zs}\p{Pd}$)"), {"\"€12\u00a0–\"", R"("$1 -")"});
  for (const char* p : {R"(^\p{Greek}$)", R"(^\p{L$)", R"(^\p$)", R"(^\p{}$)", R"([\p{Alphabetic}])"})
    EXPECT_THROW(of(s(p)), Error) << p;
  // A text of such characters is led through few rules: those of a hundred thousand letters have been gone through
  // here.
  Automaton a = of(s(R"(^\p{L}{1,2000}$)"));
  std::string text = "\"";
  for (int i = 0; i < 500; ++i) text += "é中a";
  EXPECT_TRUE(a.matches(text + "\""));
  EXPECT_FALSE(a.matches(text + "1\""));
}

}  // namespace
}  // namespace mxt::serve
