#include "data/filter/filter.h"

#include <nlohmann/json.hpp>

#include "data/curate.h"
#include "data/filter/redact.h"
#include "data/settings.h"
#include "helpers.h"

namespace mxt::data {
namespace {

using config::Redact;
using testing::DataTest;
using testing::error_of;

TEST(MeasureText, CountsByHand) {
  const TextMeasures m = measure_text("Ab 1é!?\n中", true, true);
  EXPECT_EQ(m.characters, 9);
  EXPECT_EQ(m.words, 3);  // ab, 1é, 中
  EXPECT_DOUBLE_EQ(m.letters, 4.0 / 7);
  EXPECT_DOUBLE_EQ(m.symbols, 2.0 / 7);
  EXPECT_DOUBLE_EQ(m.repeated_lines, 0);
  EXPECT_DOUBLE_EQ(m.repeated_ngrams, 0);
  const TextMeasures none = measure_text(" \n", true, true);
  EXPECT_EQ(none.characters, 2);
  EXPECT_EQ(none.words, 0);
  EXPECT_DOUBLE_EQ(none.letters, 0);
}

TEST(MeasureText, RepeatedLinesAreThoseThatStoodBefore) {
  EXPECT_DOUBLE_EQ(measure_text("a\nb\n a \n\n\nb\nb", true, false).repeated_lines, 3.0 / 5);
  EXPECT_DOUBLE_EQ(measure_text("a\nb", true, false).repeated_lines, 0);
}

TEST(MeasureText, RepeatedRunsCoverTheirWordsOnce) {
  EXPECT_DOUBLE_EQ(measure_text("a b c d e f g h", false, true).repeated_ngrams, 0);
  // Words 0–4 are a b c d e; they stand again at 6–10, and with x before and after: 5 of 12 words.
  EXPECT_DOUBLE_EQ(measure_text("a b c d e x a b c d e y", false, true).repeated_ngrams, 5.0 / 12);
  // Six words again: two runs overlap, six words are covered.
  EXPECT_DOUBLE_EQ(measure_text("a b c d e f. A b c d e f!", false, true).repeated_ngrams, 6.0 / 12);
  // One word 10 times: runs from word 1 on were there before; they cover words 1–9.
  EXPECT_DOUBLE_EQ(measure_text("a a a a a a a a a a", false, true).repeated_ngrams, 9.0 / 10);
  EXPECT_DOUBLE_EQ(measure_text("a a a a", false, true).repeated_ngrams, 0);
}

int first_failed(const config::Filter& f, const std::string& text) { return RowFilter(f).check({text, {}, ""}); }

TEST(RowFilter, LimitsAreAllowedThemselvesAndTheFirstFailedIsNamed) {
  config::Filter f;
  f.min_words = 2;
  f.max_symbols = 0.25;
  EXPECT_EQ(RowFilter(f).reasons(), (std::vector<std::string>{"min_words", "max_symbols"}));
  EXPECT_EQ(first_failed(f, "one two"), -1);
  EXPECT_EQ(first_failed(f, "one!"), 0);
  EXPECT_EQ(first_failed(f, "a b c !"), -1);  // 1 of 4
  EXPECT_EQ(first_failed(f, "a b c !!"), 1);  // 2 of 5
  EXPECT_EQ(first_failed(f, "?!"), 0);
  config::Filter g;
  g.min_letters = 0.5;
  EXPECT_EQ(first_failed(g, "ab12"), -1);
  EXPECT_EQ(first_failed(g, "ab123"), 0);
  config::Filter h;
  h.max_words = 3;
  h.max_repeated_lines = 0.3;
  EXPECT_EQ(first_failed(h, "a\nb\nc"), -1);
  EXPECT_EQ(first_failed(h, "a\na"), 1);
}

class FilterTest : public DataTest {};

TEST_F(FilterTest, RowsThatShareARunOfWordsWithABenchmarkGo) {
  config::Filter f;
  f.decontaminate = {
      write("bench.jsonl", R"({"question":"How many apples are left when Tom eats two of nine?","answer":"#### 7"})"
                           "\n"
                           R"({"question":"Short one","answer":"4"})"
                           "\n"),
      write("more.csv", "text\n\"One two three four five six seven\"\n")};
  f.decontaminate_ngram = 6;
  EXPECT_EQ(first_failed(f, "He asks: how MANY apples are left -- when I go?"), 0);
  EXPECT_EQ(first_failed(f, "how many apples are left where"), -1);
  EXPECT_EQ(first_failed(f, "short one 4"), 0);  // a benchmark's row of fewer words: the whole
  EXPECT_EQ(first_failed(f, "a short one 4"), -1);
  EXPECT_EQ(first_failed(f, "zero one two three four five six"), 0);
  f.decontaminate.push_back("nowhere.jsonl");
  EXPECT_HAS(error_of([&] { first_failed(f, "x"); }), "nowhere.jsonl");
}

TEST_F(FilterTest, EvalDocumentsAreBenchmarksToo) {
  config::Filter f;
  f.decontaminate_eval = true;
  f.decontaminate_ngram = 4;
  const RowFilter filter(f, {"What is the capital of France?\nParis"});
  EXPECT_EQ(filter.reasons(), (std::vector<std::string>{"decontaminate"}));
  RowText row;
  row.text = "asked: what is the capital of Peru";
  EXPECT_EQ(filter.check(row), 0);
  row.text = "what is a capital of France";
  EXPECT_EQ(filter.check(row), -1);
}

TEST(Languages, RowsInOtherLanguagesGo) {
  const std::string english = "The quick brown fox jumps over the lazy dog, and nobody in the village was surprised.",
                    german =
                        "Der schnelle braune Fuchs springt über den faulen Hund, und niemand im Dorf wunderte sich.",
                    french = "Le renard brun rapide saute par-dessus le chien paresseux, et personne ne fut surpris.",
                    chinese = "敏捷的棕色狐狸跳过了懒狗，村里没有人感到惊讶。", short_text = "ok 42";
  config::Filter f;
  f.languages = {"en", "de"};
  try {
    RowFilter probe(f);
  } catch (const Error& e) {
    ASSERT_EQ(e.code(), Exit::kMissing) << e.what();
    GTEST_SKIP() << e.what();
  }
  EXPECT_EQ(RowFilter(f).reasons(), (std::vector<std::string>{"languages"}));
  EXPECT_EQ(first_failed(f, english), -1);
  EXPECT_EQ(first_failed(f, german), -1);
  EXPECT_EQ(first_failed(f, french), 0);
  EXPECT_EQ(first_failed(f, chinese), 0);
  EXPECT_EQ(first_failed(f, short_text), -1);  // nothing can be told
  f.drop_unknown_language = true;
  EXPECT_EQ(first_failed(f, short_text), 0);
  f.languages = {"zh"};
  EXPECT_EQ(first_failed(f, chinese), -1);
  f.languages = {"en"};
  f.min_language_part = 0.9;
  EXPECT_EQ(first_failed(f, english + " " + french), 0);  // about half
  f.min_language_part = 0.3;
  EXPECT_EQ(first_failed(f, english + " " + french), -1);
  f.languages = {"klingon!"};
  EXPECT_HAS(error_of([&] { RowFilter x(f); }), "klingon");
  f.languages = {"en"};
  f.min_chars = 3;
  f.decontaminate_eval = true;  // reasons keep their order and their numbers
  const RowFilter all(f, {"one two three four five six seven eight nine ten eleven twelve thirteen fourteen"});
  EXPECT_EQ(all.reasons(), (std::vector<std::string>{"min_chars", "languages", "decontaminate"}));
  RowText row;
  row.text = "x";
  EXPECT_EQ(all.check(row), 0);
  row.text = french;
  EXPECT_EQ(all.check(row), 1);
  row.text = english + " one two three four five six seven eight nine ten eleven twelve thirteen fourteen";
  EXPECT_EQ(all.check(row), 2);
}

std::string redacted(std::string text, Redacted* n = nullptr) {
  constexpr Redact kAll[] = {Redact::kEmail, Redact::kPhone, Redact::kKey};
  const Redacted count = redact_text(&text, kAll);
  if (n) *n = count;
  return text;
}

// Messages of a table stand as JSON text, in which an escape may touch an address.
TEST(RedactRecord, JsonTextInACell) {
  Record r;
  r.kind = FileKind::kCsv;
  r.path = std::make_shared<const std::string>("d.csv");
  r.header = std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"messages"});
  r.cells = {R"([{"role":"user","content":"ask\njoe@x.org\nor a@b.org"}])"};
  constexpr Redact kMail[] = {Redact::kEmail};
  const Layout layout = find_layout(r, {});
  const Redacted n = redact_record(&r, layout, kMail);
  EXPECT_EQ(n[static_cast<size_t>(Redact::kEmail)], 2u);
  EXPECT_EQ((*read_example(r, layout).messages)[0]["content"], "ask\n<EMAIL>\nor <EMAIL>");
}

TEST(RedactText, Mail) {
  EXPECT_EQ(redacted("to a.b+c@mail.example.org, or x@y.co."), "to <EMAIL>, or <EMAIL>.");
  EXPECT_EQ(redacted("mailto:me@host.museum"), "mailto:<EMAIL>");
  for (const char* none : {"a@b", "@name", "x @y.org", "1@2.3", "C++@v1.2", "git@", "a@b..org", "a@.org"})
    EXPECT_EQ(redacted(none), none);
}

TEST(RedactText, Phones) {
  EXPECT_EQ(redacted("call +49 (0)30 1234-5678 now"), "call <PHONE> now");
  EXPECT_EQ(redacted("+14155550123"), "<PHONE>");
  EXPECT_EQ(redacted("+1-415-555-0123 4155550123 and +44 20 7946 0123, +123456789012345678"),
            "<PHONE> 4155550123 and <PHONE>, +123456789012345678");
  EXPECT_EQ(redacted("(415) 555-0123, 415-555-0123 or 415.555.0123."), "<PHONE>, <PHONE> or <PHONE>.");
  for (const char* none : {"1234567890", "3+12345678 = 12345681x", "2024-11-22", "192.168.100.100", "+1 2",
                           "1415-555-0123", "415-555-01234", "415-555-0123-9", "+1234567890123456", "x = 12 - 345-678"})
    EXPECT_EQ(redacted(none), none);
}

TEST(RedactText, Keys) {
  const std::string hex = "0123456789abcdef0123456789abcdef0123";
  EXPECT_EQ(redacted("AKIA"
                     "IOSFODNN7EXAMPLE."),
            "<KEY>.");
  EXPECT_EQ(redacted("token: ghp_" + hex + ";"), "token: <KEY>;");
  EXPECT_EQ(redacted("key=sk-proj-" + hex), "key=<KEY>");
  EXPECT_EQ(redacted("hf_" + hex.substr(0, 34)), "<KEY>");
  EXPECT_EQ(redacted("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"), "<KEY>");
  EXPECT_EQ(redacted("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nb"), "a\n<KEY>\nb");
  EXPECT_EQ(redacted("-----BEGIN OPENSSH PRIVATE KEY-----\ncut off"), "<KEY>");
  for (const char* none :
       {"AKIAiosfodnn7example", "hf_hub_download(repo_id=x, filename=y)", "sk-learn", "task-0123456789012345678901",
        "-----BEGIN CERTIFICATE-----", "risk-averse-and-quite-cautious-people"})
    EXPECT_EQ(redacted(none), none);
}

TEST(RedactText, CountsAndLeavesTheRest) {
  Redacted n;
  EXPECT_EQ(redacted("é a@b.de é c@d.fr +4930123456 é", &n), "é <EMAIL> é <EMAIL> <PHONE> é");
  EXPECT_EQ(n, (Redacted{2, 1, 0}));
  std::string only = "a@b.de +4930123456";
  constexpr Redact kPhone[] = {Redact::kPhone};
  redact_text(&only, kPhone);
  EXPECT_EQ(only, "a@b.de <PHONE>");
}

TEST(RedactText, StaysLinearOnHostileText) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "a.+(-@";
  EXPECT_EQ(redacted(text), text);
  std::string pem;
  for (int i = 0; i < 20000; ++i) pem += "-----BEGIN ";
  EXPECT_EQ(redacted(pem), pem);
}

}  // namespace
}  // namespace mxt::data
