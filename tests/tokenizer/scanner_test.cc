#include "tokenizer/split/scanner.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "base/text.h"
#include "tokenizer/split/regex.h"

namespace mxt::tokenizer {
namespace {

using Kind = ScanRule::Kind;
const ScanRule kRules[] = {
    {Kind::kGpt2, 0}, {Kind::kDigitsGpt2, 0}, {Kind::kCl100k, 1}, {Kind::kCl100k, 2}, {Kind::kCl100k, 3}};

std::vector<std::string> bulk(const ScanRule& rule, std::string_view s) {
  std::vector<uint32_t> ends(kScanWindow + 64);
  std::vector<std::string> out;
  for (size_t p = 0; p < s.size();) {
    const size_t n = scan_pieces(rule, s.data(), p, s.size(), ends.data());
    EXPECT_GT(n, 0u);
    size_t b = 0;
    for (size_t k = 0; k < n; ++k) {
      EXPECT_GT(ends[k], b);
      out.emplace_back(s.substr(p + b, ends[k] - b));
      b = ends[k];
    }
    p += b;
  }
  return out;
}

std::vector<std::string> one_by_one(const ScanRule& rule, std::string_view s) {
  std::vector<std::string> out;
  for (size_t p = 0; p < s.size();) {
    const size_t e = next_piece(rule, s.data(), p, s.size());
    out.emplace_back(s.substr(p, e - p));
    p = e;
  }
  return out;
}

std::vector<std::string> by_regex(const Regex& regex, std::string_view s) {
  std::vector<std::string> out;
  size_t p = 0, b, e;
  while (p < s.size() && regex.find(s, p, b, e)) {
    EXPECT_EQ(b, p);
    out.emplace_back(s.substr(b, e - b));
    p = e;
  }
  return out;
}

std::string random_text(Philox& rng, size_t pieces) {
  static const std::vector<std::string> kParts = {"a",
                                                  "b",
                                                  "Z",
                                                  "é",
                                                  "中",
                                                  "ж",
                                                  "1",
                                                  "23",
                                                  "½",
                                                  "٣",
                                                  ".",
                                                  "!",
                                                  "—",
                                                  "，",
                                                  "😀",
                                                  "'",
                                                  "'s",
                                                  "'LL",
                                                  "'ſ",
                                                  "'re",
                                                  " ",
                                                  "  ",
                                                  "\t",
                                                  "\n",
                                                  "\r\n",
                                                  "\n\n",
                                                  " \n",
                                                  "\xC2\xA0",
                                                  "\xE3\x80\x80",
                                                  "\xE2\x80\xA8",
                                                  "\xC2\x85",
                                                  "\v",
                                                  "word",
                                                  "the",
                                                  "((",
                                                  "\xCC\x81"};
  std::string s;
  while (pieces--) {
    const auto& p = kParts[rng.below(kParts.size())];
    const uint64_t times = rng.below(40) == 0 ? 1 + rng.below(90) : 1;
    for (uint64_t i = 0; i < times; ++i) s += p;
  }
  return s;
}

TEST(Scanner, BulkFindsThePiecesOfThePlainFunctionAndOfTheRegex) {
  Philox rng(11, 0);
  for (const auto& rule : kRules) {
    const Regex regex(pattern_of(rule), "test");
    for (int round = 0; round < 400; ++round) {
      const std::string s = random_text(rng, 1 + rng.below(round % 10 == 0 ? 6000 : 60));
      const auto plain = one_by_one(rule, s);
      ASSERT_EQ(bulk(rule, s), plain) << s;
      if (rule.kind != Kind::kDigitsGpt2) {
        ASSERT_EQ(by_regex(regex, s), plain) << s;
      }
    }
  }
}

TEST(Scanner, PiecesLongerThanTheWindowStayWhole) {
  for (const auto& rule : kRules)
    for (const char* unit : {"a", " ", ".", "\n", " \n", "中", "\xE3\x80\x80", "'", "1"}) {
      std::string s = "x";
      while (s.size() < 3 * kScanWindow) s += unit;
      for (const char* tail : {"", "y", " y", "\n", ".", "7"})
        ASSERT_EQ(bulk(rule, s + tail), one_by_one(rule, s + tail)) << unit;
    }
}

TEST(Scanner, KnowsTheSpellingsOfItsPatterns) {
  for (const auto& rule : kRules) {
    const auto found = scan_rule_of(pattern_of(rule));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->max_digits, rule.max_digits);
  }
  EXPECT_FALSE(scan_rule_of(R"(\w+)"));
}

TEST(Scanner, SplitsAsGpt2Does) {
  const std::vector<std::string> want = {"I", "'m", " here", "  ", " 12", "!?", "\n"};
  EXPECT_EQ(bulk({Kind::kGpt2, 0}, "I'm here   12!?\n"), want);
}

TEST(Scanner, SplitsAsQwenDoes) {
  const std::vector<std::string> want = {"I", "'M", " here", "  ", " ", "1", "2", "!?\n", "  \n", " ", "\tx"};
  EXPECT_EQ(bulk({Kind::kCl100k, 1}, "I'M here   12!?\n  \n \tx"), want);
}

TEST(Scanner, SmolLmLeavesWhiteSpaceBeforeADigitWhole) {
  const std::vector<std::string> want = {"a", "  ", "1", "2", "  ", " b"};
  EXPECT_EQ(bulk({Kind::kDigitsGpt2, 0}, "a  12   b"), want);
}

}  // namespace
}  // namespace mxt::tokenizer
