// Ids and decoded texts are those of Hugging Face tokenizers (tools/golden/tokenizer_golden.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {
namespace {

const std::string kGolden = std::string(kSourceDir) + "/tests/golden/tokenizer/";

void expect_cases(const Tokenizer& t, const Json& cases) {
  ASSERT_GT(cases.size(), 40u);
  for (const auto& c : cases) {
    const auto text = c.at("text").get<std::string>();
    const auto ids = c.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(t.encode(text), ids) << text;
    EXPECT_EQ(t.decode(ids), c.at("decoded").get<std::string>()) << text;
    std::vector<Span> spans;
    EXPECT_EQ(t.encode_with_offsets(text, {}, spans), ids) << text;
    ASSERT_EQ(spans.size(), ids.size());
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_LE(spans[i].begin, spans[i].end);
      EXPECT_LE(spans[i].end, text.size());
      EXPECT_LE(spans[i > 0 ? i - 1 : 0].begin, spans[i].begin) << text;
    }
  }
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, GivesTheOraclesIdsAndText) {
  const Json j = read_json_file(kGolden + GetParam() + ".json");
  const auto t = Tokenizer::from_json(j.at("tokenizer").dump(), GetParam());
  expect_cases(*t, j.at("cases"));
}

TEST_P(Golden, SavesAndLoadsWithEqualIds) {
  const Json j = read_json_file(kGolden + GetParam() + ".json");
  const std::string dir = testing::TempDir() + "/tokenizer_save_" + GetParam();
  Tokenizer::from_json(j.at("tokenizer").dump(), GetParam())->save(dir);
  expect_cases(*Tokenizer::from_folder(dir), j.at("cases"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Golden,
                         testing::Values("qwen", "gpt2", "gpt2_prefix", "smollm", "llama3", "nanochat", "o200k",
                                         "steps", "anchors", "words", "llama2", "metaspace", "bert"));

// What tokenizer_config.json says beside a tokenizer.json, by class.
TEST(ClassFlags, ChangeWhatTransformersClassesChange) {
  const Json all = read_json_file(kGolden + "class_flags.json");
  ASSERT_GT(all.size(), 15u);
  for (const Json& one : all) {
    SCOPED_TRACE(one.at("of").get<std::string>() + " " + one.at("config").dump());
    const std::string dir = testing::TempDir() + "/tokenizer_class_flags";
    make_folders(dir);
    Json file = read_json_file(kGolden + one.at("of").get<std::string>() + ".json").at("tokenizer");
    if (one.contains("first")) {
      Json& steps = file["normalizer"]["normalizers"];
      steps.insert(steps.begin(), one["first"].begin(), one["first"].end());
    }
    write_file_atomic(dir + "/tokenizer.json", file.dump());
    write_file_atomic(dir + "/tokenizer_config.json", one.at("config").dump());
    if (one.contains("model_type"))
      write_file_atomic(dir + "/config.json", Json{{"model_type", one.at("model_type")}}.dump());
    else
      fs::remove(dir + "/config.json");
    const auto t = Tokenizer::from_folder(dir);
    t->save(dir + "/again");
    if (one.contains("model_type"))
      fs::copy_file(dir + "/config.json", dir + "/again/config.json", fs::copy_options::overwrite_existing);
    const auto again = Tokenizer::from_folder(dir + "/again");
    for (const Json& c : one.at("cases")) {
      const auto ids = c.at("ids").get<std::vector<int32_t>>();
      EXPECT_EQ(t->encode(c.at("text").get<std::string>()), ids) << c.at("text");
      EXPECT_EQ(again->encode(c.at("text").get<std::string>()), ids) << c.at("text");
      if (c.contains("decoded")) {
        EXPECT_EQ(t->decode(ids), c.at("decoded").get<std::string>());
      }
    }
  }
}

// Real tokenizers, where they lie under weights/NAME.
class Real : public testing::TestWithParam<const char*> {};

TEST_P(Real, GivesTheOraclesIdsAndText) {
  const std::string dir = std::string(kSourceDir) + "/weights/" + GetParam();
  if (!fs::exists(dir + "/tokenizer.json")) GTEST_SKIP() << dir << "/tokenizer.json is not on this machine";
  expect_cases(*Tokenizer::from_folder(dir), read_json_file(kGolden + "real.json").at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Models, Real, testing::Values("qwen3", "smollm2", "gpt2", "minilm"));

}  // namespace
}  // namespace mxt::tokenizer
