// The calculator against nanochat's own (tools/golden/nanochat_chat.py), and its results in the middle of an answer.
#include "infer/calculator.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "folders.h"
#include "infer/engine.h"
#include "tokenizer/chat/nanochat.h"
#include "tokenizer/train.h"

namespace mxt::infer {
namespace {

const OrderedJson& golden() {
  static const OrderedJson kGolden =
      parse_ordered_json(read_file(std::string(kSourceDir) + "/tests/golden/nanochat/chat/chat.json"), "chat.json");
  return kGolden;
}

std::shared_ptr<const tokenizer::Tokenizer> its_tokenizer() {
  tokenizer::TrainOptions o;
  o.vocab_size = golden()["vocab_size"];
  o.special_tokens = tokenizer::nanochat_specials();
  o.ties = tokenizer::Ties::kRustBpe;
  size_t at = 0;
  std::string text;
  auto made = tokenizer::train_byte_level_bpe(o, [&](std::string_view& t) {
    if (at == golden()["corpus"].size()) return false;
    text = golden()["corpus"][at++];
    t = text;
    return true;
  });
  return tokenizer::Tokenizer::from_spec(std::move(made.spec));
}

TEST(Calculator, ComputesAsNanochatDoes) {
  ASSERT_GT(golden()["calculator"].size(), 900u);
  for (const auto& c : golden()["calculator"]) {
    const auto got = calculate(c[0].get<std::string>());
    EXPECT_EQ(got ? OrderedJson(*got) : OrderedJson(), c[1]) << c[0];
  }
}

TEST(Calculator, IsBoundedWhateverIsAsked) {
  EXPECT_EQ(calculate(std::string(100000, '(')), std::nullopt);
  EXPECT_EQ(calculate(std::string(100000, '-') + "1"), "1");
  EXPECT_EQ(calculate(std::string(100000, '9')), std::nullopt);  // no whole numbers beyond 33 digits
  EXPECT_EQ(calculate("9999999999999999999*9999999999999999999"), std::nullopt);
  EXPECT_EQ(calculate("999999999999999999999999999999999"), "999999999999999999999999999999999");
  EXPECT_EQ(calculate(""), std::nullopt);
  EXPECT_EQ(calculate("__import__('os').count('a')"), std::nullopt);
}

TEST(Calculator, ForcesTheResultAfterAnExpression) {
  const auto tok = its_tokenizer();
  const auto tool = make_calculator(*tok);
  ASSERT_TRUE(tool);
  const auto say = [&](const std::string& text) {
    std::vector<int32_t> forced;
    for (const int32_t id : tok->encode(text)) {
      EXPECT_TRUE(forced.empty());
      forced = tool->after(id);
    }
    return tok->decode(forced);
  };
  EXPECT_EQ(say("1 + 1 = <|python_start|>1 + 1<|python_end|>"), "<|output_start|>2<|output_end|>");
  EXPECT_EQ(say("<|python_start|>1,200/4<|python_end|>"), "<|output_start|>300.0<|output_end|>");
  EXPECT_EQ(say("<|python_start|>1/0<|python_end|>"), "");
  EXPECT_EQ(say("<|python_start|><|python_end|>"), "");
  EXPECT_EQ(say("1+1<|python_end|>"), "");  // no expression was begun
  EXPECT_EQ(say("<|python_start|>9<|python_start|>1+2<|python_end|>"),
            "<|output_start|>3<|output_end|>");  // begun anew
  EXPECT_FALSE(make_calculator(*tokenizer::Tokenizer::characters("abc")));
}

TEST(Calculator, IsShownAsPeopleWriteIt) {
  const auto tok = its_tokenizer();
  const auto shown = [&](const std::string& text) { return answer_text(*tok, tok->encode(text)); };
  EXPECT_EQ(shown("a<|python_start|>12/60<|python_end|><|output_start|>0.2<|output_end|>0.2 b<|assistant_end|>"),
            "a<<12/60=0.2>>0.2 b");
  EXPECT_EQ(shown("<|python_start|>1/0<|python_end|> none"), "<<1/0>> none");
  EXPECT_EQ(shown("<|python_start|>1/0<|python_end|>"), "<<1/0>>");
  EXPECT_EQ(shown("<|python_start|>1<|python_end|><|python_start|>2<|python_end|><|output_start|>2<|output_end|>"),
            "<<1>><<2=2>>");
  EXPECT_EQ(shown("x<|output_end|><|python_end|><|output_start|>y"), "xy");
}

// Says what it is told to after the third token.
class Third : public Tool {
 public:
  std::vector<int32_t> after(int32_t) override {
    return ++n_ == 3 ? std::vector<int32_t>{5, 7, 11} : std::vector<int32_t>();
  }
  int n_ = 0;
};

TEST(Tools, WhatOneSaysStandsInTheAnswerAndIsReadOn) {
  Model m(std::string(kSourceDir) + "/tests/golden/models/nanochat_v2", "", DType::kF32, 0, kernels::cpu_ops());
  Engine engine(m, {});
  Request r;
  r.prompt = {1, 2, 3, 4};
  r.max_tokens = 9;
  r.logprobs = 0;
  const auto plain = engine.generate({r})[0].tokens;
  r.tool = std::make_shared<Third>();
  const Answer got = engine.generate({r})[0];
  ASSERT_EQ(got.tokens.size(), 9u);
  EXPECT_EQ(std::vector(got.tokens.begin(), got.tokens.begin() + 3), std::vector(plain.begin(), plain.begin() + 3));
  EXPECT_EQ(std::vector(got.tokens.begin() + 3, got.tokens.begin() + 6), (std::vector<int32_t>{5, 7, 11}));
  for (int k = 3; k < 6; ++k) EXPECT_EQ(got.logprobs[static_cast<size_t>(k)], 0);
  // What follows is what the model says after these tokens, told as a prompt.
  Request told;
  told.prompt = r.prompt;
  told.prompt.insert(told.prompt.end(), got.tokens.begin(), got.tokens.begin() + 6);
  told.max_tokens = 3;
  EXPECT_EQ(engine.generate({told})[0].tokens, std::vector(got.tokens.begin() + 6, got.tokens.end()));
  r.max_tokens = 5;  // the limit cuts it like any other tokens
  r.tool = std::make_shared<Third>();
  EXPECT_EQ(engine.generate({r})[0].tokens, std::vector(got.tokens.begin(), got.tokens.begin() + 5));
}

}  // namespace
}  // namespace mxt::infer
