#include "base/yaml_events.h"

#include <gtest/gtest.h>

#include <vector>

namespace mxt {
namespace {

std::vector<YamlEvent> all(std::string_view text) {
  std::vector<YamlEvent> out;
  YamlEvents events(text);
  while (out.empty() || out.back().kind != YamlEvent::Kind::kEnd) out.push_back(events.next());
  return out;
}
// The value of `a: VALUE`.
YamlEvent value(const std::string& text) {
  const auto events = all("a: " + text);
  EXPECT_GE(events.size(), 7u);
  return events.size() > 3 ? events[3] : YamlEvent();
}

// What PyYAML 6 reads.
TEST(YamlEvents, QuotedLinesFoldAndEscapesAreCharacters) {
  EXPECT_EQ(value("'one.\n\n\n  '\n").text, "one.\n\n");
  EXPECT_EQ(value("'one\n  two\n\n  three'\n").text, "one two\nthree");
  EXPECT_EQ(value("\"one.\n\n\n  \"\n").text, "one.\n\n");
  EXPECT_EQ(value("\"one\\\n  \\ two\\n\"\n").text, "one two\n");
  EXPECT_EQ(value("\"a\\xA0b \\u2603 \\U0001F600\"\n").text, "a\u00a0b \u2603 \U0001F600");
  EXPECT_EQ(value(">-\n  one\n  two\n\n  three\n").text, "one two\nthree");
  EXPECT_EQ(value("|\n  one\n   two\n").text, "one\n two\n");
}

TEST(YamlEvents, PlainTextIsTold) {
  EXPECT_TRUE(value("12\n").plain);
  EXPECT_FALSE(value("'12'\n").plain);
  EXPECT_FALSE(value("!!str 12\n").plain);
  EXPECT_EQ(value("!!str 12\n").tag, "tag:yaml.org,2002:str");
  EXPECT_TRUE(value("~\n").is_null());
  EXPECT_TRUE(value("\n").is_null());
  EXPECT_FALSE(value("'~'\n").is_null());
}

TEST(YamlEvents, DocumentsAnchorsAndPlaces) {
  const auto events = all("a: &x [1, *x]\n---\nb\n");
  using Kind = YamlEvent::Kind;
  std::vector<Kind> kinds;
  for (const YamlEvent& e : events) kinds.push_back(e.kind);
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kDocument, Kind::kMap, Kind::kScalar, Kind::kList, Kind::kScalar,
                                      Kind::kAlias, Kind::kListEnd, Kind::kMapEnd, Kind::kDocumentEnd, Kind::kDocument,
                                      Kind::kScalar, Kind::kDocumentEnd, Kind::kEnd}));
  EXPECT_EQ(events[3].anchor, "x");
  EXPECT_EQ(events[5].anchor, "x");
  EXPECT_EQ(events[5].mark.line, 1);
  EXPECT_EQ(events[5].mark.column, 11);
  EXPECT_EQ(events[10].mark.line, 3);
  EXPECT_EQ(all("# nothing\n").size(), 1u);
}

TEST(YamlEvents, MistakesSayWhere) {
  try {
    all("a: 'open\n");
    FAIL();
  } catch (const YamlSyntaxError& e) {
    EXPECT_EQ(e.mark.line, 2);
    EXPECT_NE(std::string(e.what()), "");
  }
  EXPECT_THROW(all("a: [1\n"), YamlSyntaxError);
  EXPECT_THROW(all("a: b: c\n"), YamlSyntaxError);
  EXPECT_THROW(all("\xff\xfe\xfd"), YamlSyntaxError);
}

}  // namespace
}  // namespace mxt
