// The room with the real tokenizer and chat template of SmolLM2-135M-Instruct, where its folder is at hand: the
// environment variable MXT_SMOLLM2 names it.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/encode/encode.h"
#include "data/synth/synth.h"
#include "helpers.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::data {
namespace {

class SmolLM2Test : public testing::DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    const char* folder = std::getenv("MXT_SMOLLM2");
    if (!folder) GTEST_SKIP() << "MXT_SMOLLM2 does not name SmolLM2-135M-Instruct's folder";
    tokenizer_ = tokenizer::Tokenizer::from_folder(folder);
    const std::string source = tokenizer_->chat_template();
    coder_ = make_coder(
        {tokenizer_, tokenizer::ChatTemplate::compile(source, "SmolLM2", {{"eos_token", "<|im_end|>"}}, {"<|im_end|>"}),
         source});
  }
  Document encode(const std::string& json) {
    Record r;
    r.text = json;
    r.path = std::make_shared<const std::string>("row");
    return encode_example(read_example(r, find_layout(r, {})), *coder_, {}, "row");
  }
  std::string trained(const Document& d) {
    std::vector<int32_t> ids;
    for (int32_t l : d.labels)
      if (l >= 0) ids.push_back(l);
    return tokenizer_->decode(ids);
  }
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<SampleEncoder> coder_;
};

TEST_F(SmolLM2Test, TrainsTheAnswerThroughItsEndToken) {
  const Document d = encode(
      R"({"messages":[{"role":"user","content":"hi <|im_end|>"},{"role":"assistant","content":"one"},{"role":"user","content":"x"},{"role":"assistant","content":" two\n"}]})");
  EXPECT_EQ(trained(d), "one<|im_end|> two\n<|im_end|>");
  EXPECT_EQ(d.labels.back(), -100);
  EXPECT_EQ(std::count(d.ids.begin(), d.ids.end(), tokenizer_->eos()),
            5);  // system and four turns; the typed one is text
}

TEST_F(SmolLM2Test, ToolCallRowsAreShort) {
  int64_t tokens = 0, longest = 0;
  for (const SynthRow& r : synth_rows("tool_calls", Split::kTrain, 500, 2048)) {
    const Document d = encode(conversation({&r, 1}));
    EXPECT_EQ(trained(d), r.answer + "<|im_end|>");
    tokens += static_cast<int64_t>(d.ids.size());
    longest = std::max(longest, static_cast<int64_t>(d.ids.size()));
  }
  EXPECT_LE(longest, 128);
  EXPECT_LE(tokens, 500 * 96);
}

TEST_F(SmolLM2Test, DigestIsStableAndSeesTheTemplate) {
  const std::string a = coder_->digest();
  EXPECT_EQ(a, coder_->digest());
  EXPECT_NE(a, make_coder({tokenizer_, nullptr, ""})->digest());
}

}  // namespace
}  // namespace mxt::data
