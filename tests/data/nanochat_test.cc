// Conversations as nanochat's own tokenizer renders them: ids and mask (tools/golden/nanochat_chat.py).
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "data/dataset.h"
#include "data/encode/encode.h"
#include "folders.h"
#include "helpers.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/chat/nanochat.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace mxt::data {
namespace {

using testing::error_of;

class Nanochat : public ::testing::Test {
 protected:
  static const OrderedJson& golden() {
    static const OrderedJson kGolden =
        parse_ordered_json(read_file(std::string(kSourceDir) + "/tests/golden/nanochat/chat/chat.json"), "chat.json");
    return kGolden;
  }
  void SetUp() override {
    tokenizer::TrainOptions o;
    o.vocab_size = golden()["vocab_size"];
    o.special_tokens = tokenizer::nanochat_specials();
    o.ties = tokenizer::Ties::kRustBpe;
    o.bos_token = "<|bos|>", o.eos_token = "<|assistant_end|>";
    size_t at = 0;
    std::string text;
    auto made = tokenizer::train_byte_level_bpe(o, [&](std::string_view& t) {
      if (at == golden()["corpus"].size()) return false;
      text = golden()["corpus"][at++];
      t = text;
      return true;
    });
    tok_ = tokenizer::Tokenizer::from_spec(std::move(made.spec));
    coder_ = make_coder({tok_,
                         tokenizer::ChatTemplate::compile(tokenizer::kNanochatTemplate, "nanochat",
                                                          {{"bos_token", "<|bos|>"}}, tokenizer::nanochat_specials()),
                         tokenizer::kNanochatTemplate});
  }
  Document encode(const std::string& json) const {
    Record r;
    r.text = json;
    r.path = std::make_shared<const std::string>("row");
    return encode_example(read_example(r, find_layout(r, {})), *coder_, {}, "row");
  }
  void expect(const Document& d, const OrderedJson& want) const {
    EXPECT_EQ(OrderedJson(d.ids), want["ids"]) << tok_->decode(d.ids);
    ASSERT_EQ(d.labels.size(), want["mask"].size());
    for (size_t i = 0; i < d.labels.size(); ++i)
      EXPECT_EQ(d.labels[i], want["mask"][i] == 1 ? d.ids[i] : kNoTarget) << i << " of " << tok_->decode(d.ids);
  }
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::unique_ptr<SampleEncoder> coder_;
};

TEST_F(Nanochat, ConversationsAreItsTokensAndItsMask) {
  for (const OrderedJson& c : golden()["conversations"]) {
    SCOPED_TRACE(c["messages"].dump());
    expect(encode(OrderedJson{{"messages", c["messages"]}}.dump()), c);
    OrderedJson asked = c["messages"];
    asked.erase(asked.size() - 1);
    const RenderedChat prompt = coder_->render_prompt(asked, nullptr);
    EXPECT_EQ(OrderedJson(coder_->encode(prompt.text, prompt.plain, nullptr)), c["prompt"]);
  }
}

// GSM8K's own way of writing, in its rows and in what a plain client sends back.
TEST_F(Nanochat, CalculationsInATextAreParts) {
  const OrderedJson& c = golden()["conversations"][4];
  const std::string text = "She earns 12/60 = $<<12/60=0.2>>0.2 a minute.\\nThen 0.2*50 = $<<0.2*50=10>>10.\\n#### 10";
  expect(encode(R"({"question":" two  spaces ","answer":")" + text + "\"}"), c);
  expect(encode(R"({"messages":[{"role":"user","content":" two  spaces "},{"role":"assistant","content":")" + text +
                "\"}]}"),
         c);
  // What is no calculation stays text, and so does what a user writes.
  for (const char* plain : {"cout << 1 << 2 >> x", "<<a=b>>", "<<1+1>>", "<<=3>>", "<<1=", "<<<1=1>x>"}) {
    const auto d = encode(OrderedJson{
        {"messages", {{{"role", "user"}, {"content", "<<1=1>>"}}, {{"role", "assistant"}, {"content", plain}}}}}
                              .dump());
    for (const int32_t id : d.ids) EXPECT_NE(id, tok_->id_of("<|python_start|>")) << plain;
  }
}

TEST_F(Nanochat, WhatItsFormatHasNoPlaceForIsRefused) {
  const auto refuses = [&](const char* messages, const char* what) {
    const std::string e = error_of([&] { encode(std::string(R"({"messages":)") + messages + "}"); });
    EXPECT_NE(e.find(what), std::string::npos) << e;
  };
  refuses(R"([{"role":"assistant","content":"a"}])", "alternate");
  refuses(R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])", "alternate");
  refuses(R"([{"role":"system","content":"a"},{"role":"assistant","content":"b"}])", "followed by a user message");
  refuses(R"([{"role":"user","content":[{"type":"python","text":"1"}]},{"role":"assistant","content":"b"}])",
          "only the assistant calculates");
  refuses(R"([{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"python"}]}])", "messages[1]");
  refuses(
      R"([{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"python","text":"1"},{"type":"image"}]}])",
      "a part of type \"image\" has no picture");
}

TEST_F(Nanochat, ATemplateWithoutCalculationsRefusesPartsAndKeepsTexts) {
  const auto plain = tokenizer::ChatTemplate::compile(
      "{% for m in messages %}<|user_start|>{{ m.content }}<|user_end|>{% endfor %}", "plain", {});
  const OrderedJson text =
      OrderedJson::array({{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "<<1+1=2>>2"}}});
  tokenizer::ChatInput in;
  in.messages = &text;
  EXPECT_EQ(plain->render_prompt(in).text, "<|user_start|>a<|user_end|><|user_start|><<1+1=2>>2<|user_end|>");
  OrderedJson parts = text;
  parts[1]["content"] = OrderedJson::array({{{"type", "python"}, {"text", "1+1"}}});
  in.messages = &parts;
  const std::string e = error_of([&] { plain->render_prompt(in); });
  EXPECT_NE(e.find("messages[1].content holds calculations"), std::string::npos) << e;
}

}  // namespace
}  // namespace mxt::data
