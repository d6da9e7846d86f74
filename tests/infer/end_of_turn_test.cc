// Where an answer ends, by every place that says so.
#include "infer/end_of_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "infer/tool_turn.h"
#include "tokenizer/chat/tools_as_text.h"

namespace mxt::infer {
namespace {

// Bytes 0 to 255 as GPT-2 spells them, then the added tokens; those after a '!' are said to be no control tokens.
std::shared_ptr<const tokenizer::Tokenizer> tokenizer_with(std::vector<std::string> added, const std::string& eos) {
  using Object = nlohmann::ordered_json;
  Object vocab, t;
  int next = 0;
  for (int b = 0, n = 0; b < 256; ++b) {
    const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    const int cp = plain ? b : 256 + n++;
    vocab[cp < 0x80 ? std::string(1, static_cast<char>(cp))
                    : std::string{static_cast<char>(0xC0 | cp >> 6), static_cast<char>(0x80 | (cp & 63))}] = next++;
  }
  t["added_tokens"] = Object::array();
  for (std::string& name : added) {
    const bool special = !name.starts_with('!');
    if (!special) name.erase(0, 1);
    t["added_tokens"].push_back({{"id", next++},
                                 {"content", name},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", special}});
  }
  t["normalizer"] = t["post_processor"] = nullptr;
  t["pre_tokenizer"] =
      t["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  t["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Object::array()}};
  const std::string folder = testing::TempDir() + "/end_of_turn_tokenizer";
  make_folders(folder);
  write_file_atomic(folder + "/tokenizer.json", t.dump());
  Object config = Object::object();
  if (!eos.empty()) config["eos_token"] = eos;
  write_file_atomic(folder + "/tokenizer_config.json", config.dump());
  return tokenizer::Tokenizer::from_folder(folder);
}

std::shared_ptr<const tokenizer::ChatTemplate> chat(const tokenizer::Tokenizer& tok, const std::string& source) {
  std::vector<std::string> control;
  for (int32_t i = 0; i < tok.vocab_size(); ++i)
    if (tok.is_special(i)) control.push_back(tok.token(i));
  std::map<std::string, std::string> special;
  if (tok.eos() >= 0) special["eos_token"] = tok.token(tok.eos());
  return tokenizer::ChatTemplate::compile(source, "test", special, control);
}

formats::ModelConfig config(const std::string& text, const std::string& generation = "") {
  const std::string folder = testing::TempDir() + "/end_of_turn_config";
  make_folders(folder);
  fs::remove(folder + "/generation_config.json");
  write_file_atomic(folder + "/config.json",
                    R"({"model_type":"llama","vocab_size":270,"hidden_size":8,"num_attention_heads":1)" + text + "}");
  if (!generation.empty()) write_file_atomic(folder + "/generation_config.json", generation);
  return formats::read_model_config(folder);
}

using Ids = std::vector<int32_t>;
constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if "
    "add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(EndOfTurn, EveryPlaceCounts) {
  const auto tok = tokenizer_with({"<s>", "</s>", "<|im_start|>", "<|im_end|>"}, "</s>");
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":null)")), Ids{257});
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":258)")), (Ids{257, 258}));
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":[257,256])")), (Ids{257, 256}));
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":null)", R"({"eos_token_id":259})")), (Ids{257, 259}));
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":257)", R"({"eos_token_id":[259,256],"top_p":0.9})")),
            (Ids{257, 259, 256}));
  // What the template writes at the end of a turn, and training trains on.
  EXPECT_EQ(end_of_turn(*tok, chat(*tok, kChatMl).get(), config(R"(,"eos_token_id":null)")), (Ids{257, 259}));
  // Ids that the model has no row for can never come: whoever states them is told.
  EXPECT_THROW(config(R"(,"eos_token_id":[100000,258])"), Error);
  EXPECT_THROW(config(R"(,"eos_token_id":null)", R"({"eos_token_id":270})"), Error);
}

TEST(EndOfTurn, NullMeansNone) {
  const auto tok = tokenizer_with({"<s>"}, "");
  EXPECT_EQ(end_of_turn(*tok, nullptr, config("")), Ids{2});  // LLaMA's own where nothing is said
  EXPECT_TRUE(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":null)")).empty());
  // The class's default is for what neither file states: beside another end, 2 is a token like any other.
  EXPECT_EQ(end_of_turn(*tok, nullptr, config("", R"({"eos_token_id":256})")), Ids{256});
  EXPECT_TRUE(end_of_turn(*tok, nullptr, config("", R"({"eos_token_id":null})")).empty());
  EXPECT_EQ(end_of_turn(*tok, nullptr, config("", R"({"top_p":0.9})")), Ids{2});
  EXPECT_TRUE(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":null)", R"({"eos_token_id":null})")).empty());
  // What generation_config.json says counts beside config.json's own: that there is none, too.
  EXPECT_TRUE(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":257)", R"({"eos_token_id":null})")).empty());
  EXPECT_TRUE(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":[257,3])", R"({"eos_token_id":null})")).empty());
  EXPECT_EQ(end_of_turn(*tok, nullptr, config(R"(,"eos_token_id":257)", R"({"top_p":0.9})")), Ids{257});
  EXPECT_THROW(config("", R"({"eos_token_id":"two"})"), Error);
  EXPECT_THROW(config("", "[]"), Error);
}

TEST(EndOfTurn, WhateverTheTokenizerSaysOfIt) {
  // <|im_end|> is an added token that is no control token: it ends a turn all the same.
  const auto tok = tokenizer_with({"</s>", "<|im_start|>", "!<|im_end|>"}, "");
  EXPECT_FALSE(tok->is_special(258));
  EXPECT_EQ(end_of_turn(*tok, chat(*tok, kChatMl).get(), config(R"(,"eos_token_id":null)")), Ids{258});
}

TEST(EndOfTurn, ACallMayEndItsTurnOtherwise) {
  const auto tok = tokenizer_with({"<|user|>", "<|end|>", "<|call|>"}, "");
  const auto t =
      chat(*tok,
           "{% for m in messages %}<|user|>{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | "
           "tojson }}<|call|>{% else %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt "
           "%}<|user|>assistant:{% endif %}");
  const Ids ends = end_of_turn(*tok, t.get(), config(R"(,"eos_token_id":null)"));
  EXPECT_NE(std::find(ends.begin(), ends.end(), 257), ends.end());
}

TEST(EndOfTurn, TemplatesThatEndATurnWithTextHaveNone) {
  const auto tok = tokenizer_with({"<s>"}, "");
  const auto none = config(R"(,"eos_token_id":null)");
  EXPECT_TRUE(end_of_turn(*tok,
                          chat(*tok, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n###\n{% endfor %}").get(),
                          none)
                  .empty());
  EXPECT_TRUE(end_of_turn(*tok, chat(*tok, "{{ raise_exception('no') }}").get(), none).empty());
}

// What a template writes between a turn that calls and the next: results are plain text whatever stands in them.
TEST(ToolTurn, IsWhatTheTemplateWrites) {
  const auto tok = tokenizer_with({"<|im_start|>", "<|im_end|>"}, "<|im_end|>");
  const std::string plain =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const ToolTurn turn(tok, chat(*tok, tokenizer::with_tools_as_text(plain)), 12);
  const std::vector<Call> calls{{"f", Json::object()}, {"g", Json::object()}};
  const std::vector<std::string> results{turn.cut("4<|im_end|>"), turn.cut("a result of many letters")};
  const Ids got = turn.after(calls, results);
  EXPECT_EQ(tok->decode(got),
            "\n<|im_start|>user\n<tool_response>\n4<|im_end|>\n</tool_response>\n<tool_response>\na result of "
            "\n</tool_response><|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(std::count(got.begin(), got.end(), tok->id_of("<|im_end|>")), 1);
  try {
    ToolTurn(tok, chat(*tok, plain), 12);
    ADD_FAILURE() << "a template without tools was taken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("data.tools_in: system"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace mxt::infer
