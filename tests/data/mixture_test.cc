// Sources mixed by weight.
#include <algorithm>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "data/encode/mix.h"
#include "data/prepare.h"
#include "helpers.h"
#include "toy_coder.h"

namespace mxt::data {
namespace {

using config::MixtureStop;
using testing::DataTest;
using testing::error_of;
using testing::ToyEncoder;

TEST(Mix, TokensAreInProportionToTheWeights) {
  std::vector<uint32_t> a(1000), b(3000);
  for (uint32_t i = 0; i < 4000; ++i) (i < 1000 ? a[i] : b[i - 1000]) = i;
  const auto length = [](uint32_t d) { return 1 + d * 7919 % 50; };
  const auto tokens = [&](const std::vector<uint32_t>& v) {
    double sum = 0;
    for (uint32_t d : v) sum += length(d);
    return sum;
  };
  const MixPart parts[] = {{2, a}, {1, b}};
  const auto first = mix(parts, MixtureStop::kFirstExhausted, length, 1);
  EXPECT_EQ(first[0], a);  // used up
  EXPECT_NEAR(tokens(first[0]) / tokens(first[1]), 2, 0.01);
  EXPECT_TRUE(std::is_sorted(first[1].begin(), first[1].end()));
  EXPECT_EQ(std::adjacent_find(first[1].begin(), first[1].end()), first[1].end());  // none twice
  EXPECT_GT(first[1].back(), 3500u);                                                // drawn from all of it
  EXPECT_EQ(mix(parts, MixtureStop::kFirstExhausted, length, 1), first);
  EXPECT_NE(mix(parts, MixtureStop::kFirstExhausted, length, 2)[1], first[1]);

  const auto all = mix(parts, MixtureStop::kAllExhausted, length, 1);
  EXPECT_EQ(all[1], b);
  EXPECT_NEAR(tokens(all[0]) / tokens(all[1]), 2, 0.01);
  std::map<uint32_t, int> times;
  for (uint32_t d : all[0]) ++times[d];
  EXPECT_EQ(times.size(), a.size());
  for (const auto& [d, n] : times) EXPECT_TRUE(n == 5 || n == 6 || n == 7) << n;

  const MixPart uneven[] = {{1000, a}, {1, b}};
  EXPECT_HAS(error_of([&] { mix(uneven, MixtureStop::kAllExhausted, length, 1); }), "lower its weight");
}

TEST(Mix, OnceIsEveryDocumentWhateverTheWeights) {
  const std::vector<uint32_t> a{1, 2, 3}, b{7};
  const MixPart parts[] = {{1, a}, {50, b}};
  const auto all = mix(parts, MixtureStop::kOnce, [](uint32_t) { return 5u; }, 1);
  EXPECT_EQ(all, (std::vector<std::vector<uint32_t>>{a, b}));
}

class MixtureTest : public DataTest {
 protected:
  config::Recipe recipe(const std::string& data) {
    return config::parse_recipe(
        "meta: {project: p, run_name: r}\nmodel: {name: m}\ndata: {source: mixture, seq_len: 256, " + data + "}\n",
        "test.yaml");
  }
  void write_rows(const std::string& name, int n, const std::string& text) {
    std::string s;
    for (int i = 0; i < n; ++i) s += R"({"body":")" + text + std::to_string(i) + "\"}\n";
    write(name, s);
  }
  ToyEncoder coder_;
};

TEST_F(MixtureTest, RowsMadeHereAndSourcesThatMayBeMissing) {
  write_rows("a.jsonl", 10, "aaaa ");
  const std::string made = "mixture: [{synth: {task: sums, rows: 20}}, {path: '" + path("a.jsonl") +
                           "', columns: {body: text}, optional: true}, {path: '" + path("absent.jsonl") +
                           "', optional: true}], mixture_stop: once";
  const Prepared p = prepare(recipe(made), coder_, path("out"));
  ASSERT_EQ(p.mixture.size(), 2u);
  EXPECT_EQ(p.mixture[0].source, "synth sums");
  EXPECT_EQ(p.train.documents, 30);
  EXPECT_TRUE(prepare(recipe(made), coder_, path("out")).kept);
  const std::string none = "mixture: [{path: '" + path("absent.jsonl") + "', optional: true}]";
  EXPECT_HAS(error_of([&] { prepare(recipe(none), coder_, path("none")); }), "none of its sources is there");
  const std::string missing = "mixture: [{path: '" + path("absent.jsonl") + "'}]";
  EXPECT_HAS(error_of([&] { prepare(recipe(missing), coder_, path("none")); }), "absent.jsonl");
  for (const char* wrong :
       {"mixture: [{synth: {task: sums}, path: a}]", "mixture: [{synth: {task: sums}, optional: true}]",
        "mixture: [{path: a, weight: 2}], mixture_stop: once", "mixture: [{weight: 2}]"})
    EXPECT_HAS(error_of([&] { recipe(wrong); }), "data.mixture[0]");
}

TEST_F(MixtureTest, TextsAreWhatATokenizerIsLearnedFrom) {
  write_rows("a.jsonl", 2, "text ");
  write("b.jsonl", "{\"question\":\"why?\",\"answer\":\"so\"}\n");
  write("c.jsonl", "{\"prompt\":\"def f():\",\"completion\":\" pass\"}\n");
  const auto read = [&](const std::string& sources) {
    Texts texts(recipe("mixture: [" + sources + "]"), {});
    std::string all;
    for (std::string_view t; texts.next(&t);) all += std::string(t) + "|";
    return std::pair(all, texts.digest());
  };
  const std::string a = "{path: '" + path("a.jsonl") + "', columns: {body: text}}",
                    b = "{path: '" + path("b.jsonl") + "'}", c = "{path: '" + path("c.jsonl") + "'}";
  EXPECT_EQ(read(a + "," + b + "," + c).first, "text 0|text 1|why?\nso|def f(): pass|");
  EXPECT_EQ(read(a).second, read(a).second);
  EXPECT_NE(read(a).second, read(a + "," + b).second);
}

TEST_F(MixtureTest, RowsThatChangeAfterATokenizerWasLearnedFromThemAreSeen) {
  write_rows("a.jsonl", 2, "text ");
  const config::Recipe r = recipe("mixture: [{path: '" + path("a.jsonl") + "', columns: {body: text}}]");
  const Texts texts(r, {});
  texts.digest();
  testing::ToyEncoder coder;
  prepare(r, coder, path("same"));
  EXPECT_TRUE(texts.are_those_of(path("same")));
  write_rows("a.jsonl", 3, "text ");
  prepare(r, coder, path("other"));
  EXPECT_FALSE(texts.are_those_of(path("other")));
}

TEST_F(MixtureTest, EachSourceHasItsColumnsAndItsShare) {
  write_rows("a.jsonl", 100, "aaaaaaaaaaaaaaaa ");
  std::string chats;
  for (int i = 0; i < 300; ++i) chats += R"({"question":"q)" + std::to_string(i) + R"(","answer":"a"})" + "\n";
  write("b.jsonl", chats);
  const std::string sources = "mixture: [{path: '" + path("a.jsonl") +
                              "', columns: {body: text}, weight: 1}, {path: '" + path("b.jsonl") + "', weight: 3}]";
  const Prepared p = prepare(recipe(sources), coder_, path("out"));
  ASSERT_EQ(p.mixture.size(), 2u);
  EXPECT_EQ(p.rows_in, 400);
  EXPECT_EQ(p.mixture[0].rows_in, 100);
  EXPECT_EQ(p.mixture[1].documents, 300);
  EXPECT_EQ(p.mixture[1].used_documents, 300);
  EXPECT_LT(p.mixture[0].used_documents, 100);
  EXPECT_EQ(p.train.tokens, p.mixture[0].used_tokens + p.mixture[1].used_tokens);
  EXPECT_NEAR(static_cast<double>(p.mixture[1].used_tokens) / static_cast<double>(p.mixture[0].used_tokens), 3, 0.05);
  const Json j = read_json_file(path("out/dataset.json"));
  EXPECT_EQ(j["mixture"][1]["used_tokens"], p.mixture[1].used_tokens);
  EXPECT_EQ(j["inputs"]["mixture"]["stop"], "first_exhausted");
  const Prepared kept = prepare(recipe(sources), coder_, path("out"));
  EXPECT_TRUE(kept.kept);
  EXPECT_EQ(kept.mixture[0].used_tokens, p.mixture[0].used_tokens);
  EXPECT_HAS(p.text(), "b.jsonl: 7");

  // The same by jobs, and a weight of its own is another set.
  for (int k : {1, 2, 3}) prepare_job(recipe(sources), coder_, path("jobs"), {k, 3});
  merge_jobs(recipe(sources), coder_, path("jobs"));
  for (const std::string& f : list_files(path("out")))
    EXPECT_EQ(read_file(path("jobs/" + f)), read_file(path("out/" + f))) << f;
  EXPECT_FALSE(prepare(recipe(sources + ", mixture_stop: all_exhausted"), coder_, path("out")).kept);
}

TEST_F(MixtureTest, CopiesAreFoundAcrossSourcesAndHeldOutRowsAreNotMixed) {
  write_rows("a.jsonl", 50, "the same text of each source ");
  write_rows("b.jsonl", 80, "the same text of each source ");
  const Prepared p =
      prepare(recipe("mixture: [{path: '" + path("a.jsonl") + "', columns: {body: text}}, {path: '" + path("b.jsonl") +
                     "', columns: {body: text}}], dedupe: {exact: true}, eval_fraction: 0.1"),
              coder_, path("out"));
  EXPECT_EQ(p.curation->dropped.at("exact_copy"), 50);
  EXPECT_EQ(p.eval.documents, 8);
  EXPECT_EQ(p.mixture[0].documents + p.mixture[1].documents, 72);
  EXPECT_EQ(p.mixture[0].dropped + p.mixture[1].dropped, 50);
}

TEST_F(MixtureTest, WhatCannotBeMixedIsRefused) {
  const auto refused = [&](const std::string& data) { return error_of([&] { recipe(data); }); };
  EXPECT_HAS(refused("mixture: []"), "data.mixture: is missing");
  EXPECT_HAS(refused("mixture: [{weight: 1}]"), "names no rows");
  EXPECT_HAS(refused("mixture: [{path: a, hf_id: b}]"), "names several sources");
  EXPECT_HAS(refused("mixture: [{path: a, weight: 0}]"), "data.mixture[0].weight");
  EXPECT_HAS(refused("mixture: [{path: a, wieght: 2}]"), "did you mean weight?");
  EXPECT_HAS(refused("mixture: [{path: a}], shuffle: false"), "data.shuffle");
  EXPECT_HAS(refused("mixture: [{path: a}], sampling: random_windows"), "data.sampling");
  EXPECT_HAS(refused("mixture: [{path: a}], max_samples: 3"), "data.max_samples");
  EXPECT_HAS(error_of([&] {
               config::parse_recipe(
                   "meta: {project: p, run_name: r}\nmodel: {name: m}\n"
                   "data: {source: local, path: a, mixture: [{path: a}]}\n",
                   "t");
             }),
             "only for `source: mixture`");
  write("a.jsonl", "{\"text\":\"\"}\n");
  write("b.jsonl", "{\"text\":\"some text\"}\n");
  EXPECT_HAS(error_of([&] {
               prepare(recipe("mixture: [{path: '" + path("a.jsonl") + "'}, {path: '" + path("b.jsonl") + "'}]"),
                       coder_, path("out"));
             }),
             "a.jsonl: no document of this source");
}

}  // namespace
}  // namespace mxt::data
