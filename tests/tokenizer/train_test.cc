#include "tokenizer/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "folders.h"
#include "tokenizer/io/byte_level.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {
namespace {

Spec train(const TrainOptions& options, const std::vector<std::string>& texts) {
  size_t i = 0;
  return train_byte_level_bpe(options,
                              [&](std::string_view& t) {
                                if (i == texts.size()) return false;
                                t = texts[i++];
                                return true;
                              })
      .spec;
}

TEST(Train, FindsTheOraclesMergesTiesAndAll) {
  const Json j = read_json_file(std::string(kSourceDir) + "/tests/golden/tokenizer/train.json");
  TrainOptions o;
  o.vocab_size = 700;
  o.special_tokens = {"<|bos|>", "<|end|>"};
  auto texts = j.at("texts").get<std::vector<std::string>>();
  const Spec spec = train(o, texts);
  const auto want = j.at("vocab").get<std::map<std::string, int32_t>>();
  ASSERT_EQ(spec.model.tokens.size(), want.size());
  for (const auto& [t, id] : want) EXPECT_EQ(spec.model.tokens[static_cast<size_t>(id)], t);
  const auto& merges = j.at("merges");
  ASSERT_EQ(spec.model.merges.size(), merges.size());
  for (size_t k = 0; k < merges.size(); ++k) {
    EXPECT_EQ(spec.model.tokens[static_cast<size_t>(spec.model.merges[k].first)], merges[k][0].get<std::string>()) << k;
    EXPECT_EQ(spec.model.tokens[static_cast<size_t>(spec.model.merges[k].second)], merges[k][1].get<std::string>())
        << k;
  }
  std::reverse(texts.begin(), texts.end());
  EXPECT_EQ(train(o, texts).model.merges, spec.model.merges) << "the order of texts must not matter";
}

std::vector<std::pair<std::string, std::string>> merges_of(const Spec& spec) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [a, b] : spec.model.merges)
    out.emplace_back(spec.model.tokens[static_cast<size_t>(a)], spec.model.tokens[static_cast<size_t>(b)]);
  return out;
}

Json ties() { return read_json_file(std::string(kSourceDir) + "/tests/golden/tokenizer/train_ties.json"); }

TEST(Train, FindsTheOraclesMergesWhereTokensAreSpelledInSeveralWays) {
  const Json all = ties();
  for (const Json& c : all.at("few_letters")) {
    TrainOptions o;
    o.vocab_size = c.at("size").get<int32_t>();
    std::vector<std::pair<std::string, std::string>> want;
    for (const Json& m : c.at("merges")) want.emplace_back(m[0], m[1]);
    EXPECT_EQ(merges_of(train(o, c.at("texts").get<std::vector<std::string>>())), want);
  }
}

TEST(Train, WithRustBpesTiesIdsAreNanochats) {
  const Json all = ties();
  for (const Json& c : all.at("rustbpe")) {
    TrainOptions o;
    o.vocab_size = c.at("size").get<int32_t>();
    o.special_tokens = c.at("special").get<std::vector<std::string>>();
    o.ties = Ties::kRustBpe;
    const Spec spec = train(o, c.at("texts").get<std::vector<std::string>>());
    size_t tokens = 0;
    for (const Json& t : c.at("tokens")) {
      std::string bytes;
      const std::string hex = t[0];
      for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      const auto id = t[1].get<size_t>();
      ASSERT_LT(id, spec.model.tokens.size());
      EXPECT_EQ(spec.model.tokens[id], spell_bytes(bytes)) << id;
      ++tokens;
    }
    for (size_t i = 0; i < o.special_tokens.size(); ++i) {
      const size_t id = spec.model.tokens.size() - o.special_tokens.size() + i;
      EXPECT_EQ(spec.model.tokens[id], o.special_tokens[i]) << "special tokens stand last";
    }
    EXPECT_EQ(tokens + o.special_tokens.size(),
              static_cast<size_t>(std::count(spec.model.present.begin(), spec.model.present.end(), true)));
    const auto made = Tokenizer::from_spec(spec);
    const std::string dir = testing::TempDir() + "/rust";
    made->save(dir);
    const auto again = Tokenizer::from_folder(dir);
    for (const Json& x : c.at("cases")) {
      const auto want = x.at("ids").get<std::vector<int32_t>>();
      EXPECT_EQ(made->encode(x.at("text").get<std::string>()), want) << x.at("text");
      EXPECT_EQ(again->encode(x.at("text").get<std::string>()), want) << x.at("text");
    }
  }
}

TEST(Train, ThreadsAndTheCutOfTextsIntoSharesChangeNothing) {
  // More than two shares of a thread, rows of very different lengths, and words that no near table holds at once.
  std::vector<std::string> texts;
  for (int i = 0; i < 40000; ++i) {
    std::string t = "row " + std::to_string(i) + " of";
    for (int k = 0; k < i % 17; ++k) t += " word" + std::string(1, static_cast<char>('a' + (i * 7 + k * k) % 26)) + "x";
    texts.push_back(i % 1000 == 0 ? std::string(200000, 'z') + t : t);
  }
  TrainOptions o;
  o.vocab_size = 600;
  const int threads = num_threads();
  set_num_threads(1);
  const Spec one = train(o, texts);
  set_num_threads(3);
  std::reverse(texts.begin(), texts.end());
  const Spec three = train(o, texts);
  set_num_threads(threads);
  EXPECT_EQ(one.model.merges, three.model.merges);
  EXPECT_EQ(one.model.tokens, three.model.tokens);
}

TEST(Train, MoreDistinctPiecesThanTheMemoryHoldsAreAnError) {
  TrainOptions o;
  o.vocab_size = 300;
  o.memory_limit = 1000;
  EXPECT_THROW(train(o, {"a few words of which each needs its place in a table of the memory that is too small"}),
               Error);
}

TEST(Train, ALearnedSpecialTokenIsAnErrorWithRustBpesTies) {
  TrainOptions o;
  o.vocab_size = 262;
  o.ties = Ties::kRustBpe;
  o.special_tokens = {"ab"};
  EXPECT_THROW(train(o, {"ab ab ab ab abab"}), Error);
}

TEST(Train, TheResultEncodesAndSaves) {
  TrainOptions o;
  o.vocab_size = 300;
  o.special_tokens = {"<|bos|>"};
  o.bos_token = "<|bos|>";
  const auto t = Tokenizer::from_spec(train(o, {"the cat and the hat and the bat", "the rat sat"}));
  EXPECT_EQ(t->bos(), 0);
  EXPECT_LE(t->vocab_size(), 300);
  const std::string text = "<|bos|>the cat 中 \xFF";
  const auto ids = t->encode(text);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(t->decode(ids), "<|bos|>the cat 中 \xEF\xBF\xBD");
  const std::string dir = testing::TempDir() + "/trained";
  t->save(dir);
  const auto again = Tokenizer::from_folder(dir);
  EXPECT_EQ(again->encode(text), ids);
  EXPECT_EQ(again->bos(), 0);
}

TEST(Train, RefusesImpossibleOptions) {
  TrainOptions o;
  o.vocab_size = 200;
  EXPECT_THROW(train(o, {"a"}), Error);
  o.vocab_size = 300;
  o.special_tokens = {"x", "x"};
  EXPECT_THROW(train(o, {"a"}), Error);
  o.special_tokens = {"x"};
  o.eos_token = "y";
  EXPECT_THROW(train(o, {"a"}), Error);
  o.eos_token = "";
  o.pattern = "(";
  EXPECT_THROW(train(o, {"a"}), Error);
}

}  // namespace
}  // namespace mxt::tokenizer
