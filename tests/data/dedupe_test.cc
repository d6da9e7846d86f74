#include <algorithm>
#include <cmath>
#include <set>

#include "base/philox.h"
#include "base/threads.h"
#include "data/curate.h"
#include "data/dedupe/copies.h"
#include "data/settings.h"
#include "helpers.h"

namespace mxt::data {
namespace {

using config::ShingleUnit;
using testing::DataTest;
using testing::error_of;

std::string normalised(std::string_view s) {
  std::string out;
  normalise_text(s, &out);
  return out;
}

std::vector<uint32_t> shingles(std::string_view text, int n, ShingleUnit unit = ShingleUnit::kWords) {
  std::vector<uint32_t> out;
  Shingler(unit, n).append(normalised(text), &out);
  return out;
}

std::vector<uint32_t> set_of(std::vector<uint32_t> v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
  return v;
}

std::string words(Philox& random, int n) {
  std::string s;
  for (int i = 0; i < n; ++i) s += (i ? " w" : "w") + std::to_string(random.below(20000));
  return s;
}

TEST(NormaliseText, JoinsWhiteSpaceAndComposesCharacters) {
  EXPECT_EQ(normalised("  a\t\r\n b  "), "a b");
  EXPECT_EQ(normalised("e\xCC\x81t\xC3\xA9"), "\xC3\xA9t\xC3\xA9");  // e + combining acute = é
  EXPECT_EQ(normalised("a\xE3\x80\x80\xC2\xA0z"), "a z");            // ideographic and no-break space
  EXPECT_EQ(normalised(" \n"), "");
  EXPECT_EQ(normalised(""), "");
}

TEST(Shingler, WordsAreLowerCaseRunsWithoutPunctuation) {
  EXPECT_EQ(shingles("The cat, the DOG.", 2), shingles("the; cat -- THE (dog)", 2));
  EXPECT_EQ(shingles("the cat the dog", 2).size(), 3u);
  EXPECT_NE(shingles("the cat", 2), shingles("cat the", 2));
  EXPECT_EQ(shingles("ÉTÉ à Paris", 1), shingles("été À PARIS", 1));
  EXPECT_EQ(shingles("中文字", 1).size(), 3u);                  // each a word
  EXPECT_EQ(shingles("मैं घर", 1).size(), 2u);                    // marks belong to their word
  EXPECT_EQ(shingles("one two", 5), shingles("One. Two!", 5));  // shorter than a run: one shingle
  EXPECT_EQ(shingles("one two", 5).size(), 1u);
  EXPECT_TRUE(shingles("?! …", 3).empty());
  EXPECT_EQ(set_of(shingles("a b a b a b", 2)).size(), 2u);
}

TEST(Shingler, VectorsSeeTheSameWordsAsTheGeneralWay) {
  Philox random(4, 4);
  for (int k = 0; k < 300; ++k) {
    std::string text;
    for (uint64_t n = random.below(200); n > 0; --n) text += "aZ0 -.,Qz9'xylophone"[random.below(20)];
    auto general = shingles(text + " \xC3\xA9", 1);  // not ASCII: the general way; one word more
    general.pop_back();
    EXPECT_EQ(shingles(text, 1), general) << text;
  }
  EXPECT_EQ(shingles(std::string(64, 'a'), 1).size(), 1u);
  EXPECT_EQ(shingles(std::string(63, 'a') + " b", 1).size(), 2u);
  EXPECT_EQ(shingles(std::string(128, 'a') + "b", 1), shingles(std::string(128, 'A') + "B", 1));
}

TEST(Shingler, CharactersKeepPunctuation) {
  EXPECT_EQ(shingles("AbC", 2, ShingleUnit::kCharacters).size(), 2u);
  EXPECT_EQ(shingles("AbC", 2, ShingleUnit::kCharacters), shingles("aBc", 2, ShingleUnit::kCharacters));
  EXPECT_NE(shingles("a.c", 2, ShingleUnit::kCharacters), shingles("a,c", 2, ShingleUnit::kCharacters));
}

TEST(MinHash, TheKernelIsTheSmallestValueOfEachFunction) {
  Philox random(3, 3);
  for (int permutations : {16, 64, 100, 128, 1000})
    for (size_t n : {0, 1, 5, 43, 300}) {
      std::vector<uint32_t> x(n), one(static_cast<size_t>(permutations)), all(one.size(), UINT32_MAX), out(one.size());
      const MinHash hash(permutations);
      for (uint32_t& v : x) {
        v = random.next_u32();
        hash.signature({&v, 1}, one.data());
        for (size_t i = 0; i < one.size(); ++i) all[i] = std::min(all[i], one[i]);
      }
      hash.signature(x, out.data());
      EXPECT_EQ(out, all) << permutations << " " << n;
    }
}

TEST(MinHash, EstimatesJaccardWithoutBias) {
  Philox random(1, 1);
  const MinHash hash(128);
  for (double target : {0.3, 0.5, 0.8, 0.95}) {
    double error = 0, square = 0;
    constexpr int kPairs = 2000;
    for (int k = 0; k < kPairs; ++k) {
      // |A| = |B| = 60, of which `shared` are common: J = shared / (120 − shared).
      const int shared = static_cast<int>(std::lround(120 * target / (1 + target)));
      std::vector<uint32_t> a, b;
      for (int i = 0; i < 60; ++i) {
        a.push_back(random.next_u32());
        b.push_back(i < shared ? a.back() : random.next_u32());
      }
      const double exact = shared / (120.0 - shared);
      std::vector<uint32_t> sa(128), sb(128);
      hash.signature(a, sa.data());
      hash.signature(b, sb.data());
      int same = 0;
      for (size_t i = 0; i < 128; ++i) same += sa[i] == sb[i];
      error += same / 128.0 - exact;
      square += (same / 128.0 - exact) * (same / 128.0 - exact) / (exact * (1 - exact) / 128);
    }
    EXPECT_NEAR(error / kPairs, 0, 0.005) << target;
    EXPECT_NEAR(square / kPairs, 1, 0.15) << target;  // the variance of 128 independent functions
  }
}

TEST(Bands, FindAlmostAllCopiesWithinThePermutations) {
  for (int p : {16, 64, 128, 256})
    for (double t : {0.5, 0.7, 0.8, 0.9, 0.99}) {
      const Bands b = choose_bands(p, t);
      EXPECT_LE(b.bands * b.rows, p);
      EXPECT_GT(b.chance((1 + t) / 2), 0.9) << p << " " << t;
    }
  EXPECT_EQ(choose_bands(128, 0.8).bands, 14);
  EXPECT_EQ(choose_bands(128, 0.8).rows, 9);
  EXPECT_NEAR((Bands{2, 2}).chance(0.5), 1 - 0.75 * 0.75, 1e-12);
}

TEST(Jaccard, CountsSharedMembers) {
  EXPECT_DOUBLE_EQ(jaccard(std::vector<uint32_t>{1, 2, 3}, std::vector<uint32_t>{2, 3, 4}), 0.5);
  EXPECT_DOUBLE_EQ(jaccard(std::vector<uint32_t>{1}, std::vector<uint32_t>{2}), 0);
  EXPECT_DOUBLE_EQ(jaccard({}, {}), 1);
}

class CurateTest : public DataTest {
 protected:
  static std::string row(const std::string& text) { return "{\"text\":\"" + text + "\"}\n"; }
  RowSource source(const std::string& name, const std::string& bytes) {
    RowSource s;
    s.files = find_source_files(write(name, bytes), "train");
    return s;
  }
  static config::Data minhash(double threshold) {
    config::Data d;
    d.dedupe.minhash.emplace();
    d.dedupe.minhash->threshold = threshold;
    return d;
  }
  // The rows that stay, as they stand in the file.
  std::vector<std::string> stay(const RowSource& s, const config::Data& d, CurationReport* report = nullptr) {
    Curation c = curate(s, d, folder_);
    std::vector<std::string> left;
    const auto rows = c.stay(s);
    Record r;
    while (rows->next(&r)) left.push_back(r.text);
    if (report) *report = c.report();
    return left;
  }
};

TEST_F(CurateTest, ExactCopiesAreEqualTextButForWhiteSpace) {
  config::Data d;
  d.dedupe.exact = true;
  CurationReport r;
  const auto left =
      stay(source("a.jsonl", row("one  two") + row("one two ") + row("one Two") + row("") + row(" ")), d, &r);
  EXPECT_EQ(left.size(), 3u);
  EXPECT_EQ(r.rows_in, 5);
  EXPECT_EQ(r.dropped.at("exact_copy"), 2);
  EXPECT_EQ(r.groups, 2);
  EXPECT_EQ(r.largest_group, 2);
  ASSERT_EQ(r.samples.size(), 2u);
  EXPECT_HAS(r.samples[0].where, "a.jsonl:");
  EXPECT_EQ(r.samples[0].reason, "exact_copy");
}

TEST_F(CurateTest, ConversationsDifferByRolesAndToolsButAreComparedByTheirWords) {
  config::Data d;
  d.dedupe.exact = true;
  const std::string user = R"({"messages":[{"role":"user","content":"a b c"}]})"
                           "\n",
                    other = R"({"messages":[{"role":"assistant","content":"a b c"}]})"
                            "\n";
  const std::string spaced = R"( { "messages" : [ {"content":"a b\u0020c", "role":"user"} ] , "id": 7 } )"
                             "\n";
  EXPECT_EQ(stay(source("a.jsonl", user + other + spaced), d).size(), 2u);

  std::string tools, a, b;
  Philox random(1, 1);
  tools = words(random, 300);
  a = R"({"messages":[{"role":"system","content":")" + tools + R"("},{"role":"user","content":")" + words(random, 20) +
      "\"}]}\n";
  b = R"({"messages":[{"role":"system","content":")" + tools + R"("},{"role":"user","content":")" + words(random, 20) +
      "\"}]}\n";
  EXPECT_EQ(stay(source("b.jsonl", a + b), minhash(0.8)).size(), 2u);
}

TEST_F(CurateTest, NearCopiesAreFoundByCountedSimilarityAndJoinedInChains) {
  Philox random(2, 2);
  std::vector<std::string> w;
  for (int i = 0; i < 60; ++i) w.push_back("w" + std::to_string(i));
  // Each row changes one more word: neighbours share 55 of 61 shingles (0.90), the first and last far fewer.
  std::string all;
  for (int i = 0; i < 8; ++i) {
    w[static_cast<size_t>(5 + 6 * i)] = "x" + std::to_string(i);
    std::string text;
    for (const std::string& x : w) text += (text.empty() ? "" : " ") + x;
    all += row(text);
  }
  all += row(words(random, 60));
  CurationReport r;
  EXPECT_EQ(stay(source("a.jsonl", all), minhash(0.85), &r).size(), 2u);
  EXPECT_EQ(r.dropped.at("near_copy"), 7);
  EXPECT_EQ(r.groups, 1);
  EXPECT_EQ(r.largest_group, 8);
  EXPECT_EQ(stay(source("b.jsonl", all), minhash(0.97)).size(), 9u);
}

TEST_F(CurateTest, WhatStaysDependsOnNeitherOrderNorThreads) {
  Philox random(5, 5);
  std::vector<std::string> rows;
  for (int i = 0; i < 2000; ++i) {
    std::string text = words(random, 30);
    rows.push_back(row(text));
    for (uint64_t k = random.below(4); k > 0; --k) {
      text.replace(text.rfind(' '), std::string::npos, " y" + std::to_string(random.below(3)));
      rows.push_back(row(text));
    }
  }
  const auto run = [&](int threads) {
    std::string all;
    for (const std::string& r : rows) all += r;
    const int before = num_threads();
    set_num_threads(threads);
    auto left = stay(source("a.jsonl", all), minhash(0.8));
    set_num_threads(before);
    std::sort(left.begin(), left.end());
    return left;
  };
  const auto first = run(1);
  EXPECT_EQ(first.size(), 2000u);
  EXPECT_EQ(run(4), first);
  random.shuffle(rows);
  EXPECT_EQ(run(3), first);
}

TEST_F(CurateTest, ManyRowsOfOneTemplateAreComparedWithoutAllTheirPairs) {
  std::string all;
  const std::string head =
      "please say how many of the apples in the large basket near the door are left when the farmer takes away exactly";
  for (int i = 0; i < 4000; ++i)
    all += row(head + " " + std::to_string(i) + " of them today and " + std::to_string(i / 2) + " more");
  CurationReport r;
  const auto left = stay(source("a.jsonl", all), minhash(0.5), &r);
  EXPECT_LT(left.size(), 40u);
  EXPECT_EQ(static_cast<int64_t>(left.size()) + r.dropped.at("near_copy"), 4000);
}

TEST_F(CurateTest, PlantedPairsAreFoundWithPrecisionAndRecall) {
  Philox random(11, 1);
  std::string all;
  std::vector<double> exact;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> w(45), v;
    for (std::string& x : w) x = "w" + std::to_string(random.below(20000));
    const double target = 0.5 + 0.5 * random.uniform_double();
    const auto text_of = [](const std::vector<std::string>& x) {
      std::string s;
      for (const std::string& y : x) s += (s.empty() ? "" : " ") + y;
      return s;
    };
    const auto a = set_of(shingles(text_of(w), 3));
    v = w;
    double j = 1, last = 1;
    for (std::vector<std::string> next = w; j > target;) {  // to the nearest number of changed words
      v = next;
      last = j;
      next[random.below(45)] = "u" + std::to_string(random.next_u32());
      j = jaccard(a, set_of(shingles(text_of(next), 3)));
    }
    exact.push_back(last);
    all += row(text_of(w)) + row(text_of(v));
  }
  const RowSource s = source("a.jsonl", all);
  Curation c = curate(s, minhash(0.8), folder_);
  std::vector<int> left(exact.size(), 0);
  const auto rows = c.stay(s);
  Record r;
  while (rows->next(&r)) ++left[(r.line - 1) / 2];
  int hit = 0, copies = 0, called = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::abs(exact[i] - 0.8) < 0.05) continue;
    copies += exact[i] > 0.8;
    called += left[i] == 1;
    hit += exact[i] > 0.8 && left[i] == 1;
  }
  ASSERT_GT(copies, 500);
  EXPECT_GT(hit, 0.95 * copies);
  EXPECT_EQ(hit, called);  // similarities are counted, so nothing below the threshold is called a copy
}

TEST_F(CurateTest, FiltersCountEachRowOnceAfterItsCopies) {
  config::Data d;
  d.dedupe.exact = true;
  d.filter.emplace();
  d.filter->min_chars = 3;
  d.filter->max_chars = 5;
  CurationReport r;
  EXPECT_EQ(stay(source("a.jsonl", row("ab") + row("ab") + row("é€x") + row("abcdef")), d, &r).size(), 1u);
  EXPECT_EQ(r.dropped, (std::map<std::string, int64_t>{{"exact_copy", 1}, {"min_chars", 1}, {"max_chars", 1}}));
}

TEST_F(CurateTest, ErrorsNameTheRow) {
  config::Data d;
  d.dedupe.exact = true;
  EXPECT_HAS(error_of([&] { stay(source("a.jsonl", row("x") + "{\"text\": broken}\n"), d); }), "a.jsonl:2");
  EXPECT_HAS(error_of([&] { stay(source("b.jsonl", row("x") + "{\"text\": \"\xFF\"}\n"), d); }), "b.jsonl:2");
  EXPECT_HAS(error_of([&] { stay(source("c.jsonl", row("x") + "{\"text\": \"\\ud800\"}\n"), d); }), "c.jsonl:2");
  EXPECT_HAS(error_of([&] { stay(source("d.txt", "text"), d); }), "plain text");
  d.filter.emplace();
  d.filter->min_chars = 9;
  EXPECT_HAS(error_of([&] { stay(source("e.jsonl", row("x") + row("y")), d); }), "2 min_chars");
  // Rows that a filter would drop are no excuse for bad ones.
  EXPECT_HAS(error_of([&] { stay(source("f.jsonl", row("x") + "{\"text\": 17}\n"), d); }),
             "f.jsonl:2: \"text\" is a number");
  EXPECT_HAS(error_of([&] { stay(source("g.jsonl", row("x") + "{\"txt\": \"y\"}\n"), d); }),
             "g.jsonl:2: the row has no");
  EXPECT_HAS(error_of([&] { stay(source("h.jsonl", row("x") + "{\"text\": \"y\", \"z\": \"\\q\"}\n"), d); }),
             "h.jsonl:2");
}

TEST_F(CurateTest, NothingAskedForNothingRead) {
  const RowSource s = source("a.jsonl", "not JSON\n");
  EXPECT_FALSE(curate(s, {}, folder_).active());
}

}  // namespace
}  // namespace mxt::data
