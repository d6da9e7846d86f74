#include "tokenizer/train.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {
namespace {

Spec train(const TrainOptions& options, const std::vector<std::string>& texts) {
  size_t i = 0;
  return train_byte_level_bpe(options, [&](std::string_view& t) {
    if (i == texts.size()) return false;
    t = texts[i++];
    return true;
  });
}

TEST(Train, FindsTheOraclesMergesTiesAndAll) {
  const Json j = read_json_file(std::string(MXT_SOURCE_DIR) + "/tests/golden/tokenizer/train.json");
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
