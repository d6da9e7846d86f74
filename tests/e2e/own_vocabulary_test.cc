// A model of any family from random weights, whose vocabulary is a stage of its run: tokenizer, training, answers,
// replay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "cli.h"
#include "tokenizer/tokenizer.h"

namespace mxt {
namespace {

std::string recipe(const std::string& folder, const std::string& config) {
  return fmt::format(R"(meta: {{project: test, run_name: own, seed: 3}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: tiny, init: random, tokenizer: train, torch_dtype: float32, config: {{{1}}}}}
data:
  source: synth
  synth: {{task: tool_calls_made_up, rows: 120, turns: 3, test_rows: 4}}
  seq_len: 512
train:
  method: {{kind: full}}
  precision: float32
  schedule: {{max_steps: 4}}
  batch: {{per_device: 1, grad_accum: 1}}
eval: {{harness: {{tasks: []}}, generation: {{limit: 4, max_tokens: 8}}}}
receipt: {{output: "{0}/receipt.json"}}
)",
                     folder, config);
}

constexpr const char* kExperts =
    "model_type: qwen3_moe, vocab_size: 400, hidden_size: 32, intermediate_size: 48, moe_intermediate_size: 24, "
    "num_experts: 4, num_experts_per_tok: 2, norm_topk_prob: true, num_hidden_layers: 2, num_attention_heads: 2, "
    "num_key_value_heads: 1, head_dim: 16, max_position_embeddings: 512, tie_word_embeddings: true";

TEST(OwnVocabulary, IsLearnedOnceAndTheRunReplays) {
  const cli::Folder f("own_vocabulary");
  write_file_atomic(f / "r.yaml", recipe(f.path, kExperts));
  auto r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "run"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto made = tokenizer::Tokenizer::from_folder(f / "run/tokenizer");
  EXPECT_EQ(made->vocab_size(), 400);
  EXPECT_FALSE(made->chat_template().empty());
  const std::string learned = read_file(f / "run/tokenizer.json");
  EXPECT_EQ(read_json_file(f / "run/tokenizer.json")["vocab_size"], 400);
  r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "run"));
  EXPECT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(read_file(f / "run/tokenizer.json"), learned);
  r = cli::run("receipt " + (f / "run") + " --replay");
  EXPECT_EQ(r.code, 0) << r.out;
}

// Llama's own would be ids 1 and 2, which are tokens of text here: answers ended at them, in transformers too.
TEST(OwnVocabulary, SaysWhichTokensBeginAndEndAText) {
  const cli::Folder f("own_ends");
  write_file_atomic(f / "text.txt", "one and one and two and three");
  const auto made =
      cli::run("tokenizer train --input " + (f / "text.txt") +
               " --vocab-size 260 --special '<|a|>' --special '<|end|>' --eos '<|end|>' --out " + (f / "own"));
  ASSERT_EQ(made.code, 0) << made.out;
  const auto config_of = [&](const std::string& tokenizer, const std::string& stated) {
    write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: ends}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: r, init: random, tokenizer: "{2}", torch_dtype: float32, config: {{model_type: llama, {1}hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 64}}}}
data: {{source: local, path: "{0}/text.txt", seq_len: 64}}
train: {{method: {{kind: pretrain}}, precision: float32, schedule: {{max_steps: 1}}, batch: {{per_device: 1, grad_accum: 1}}}}
)",
                                                f.path, stated, tokenizer));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 0) << r.out;
    const Json config = read_json_file(f / "out/checkpoint/config.json");
    fs::remove_all(f / "out");
    return config;
  };
  const Json config = config_of(f / "own", "");
  EXPECT_EQ(config.at("vocab_size"), 260);
  EXPECT_EQ(config.at("eos_token_id"), 1);
  EXPECT_TRUE(config.at("bos_token_id").is_null());
  EXPECT_TRUE(config_of("char", "").at("eos_token_id").is_null());
  EXPECT_EQ(config_of(f / "own", "eos_token_id: 7, ").at("eos_token_id"), 7);
}

TEST(OwnVocabulary, WithoutASizeOrTooLargeForTheTextIsSaid) {
  const cli::Folder f("own_vocabulary_refused");
  write_file_atomic(f / "r.yaml", recipe(f.path, "model_type: llama, hidden_size: 32"));
  auto r = cli::run("validate " + (f / "r.yaml"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("model.config.vocab_size"), std::string::npos) << r.out;
  std::string large = kExperts;
  large.replace(large.find("400"), 3, "90000");
  write_file_atomic(f / "r.yaml", recipe(f.path, large));
  r = cli::run("run " + (f / "r.yaml") + " --out " + (f / "run"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("model.config.vocab_size"), std::string::npos) << r.out;
  EXPECT_FALSE(std::filesystem::exists(f / "run/tokenizer"));
}

}  // namespace
}  // namespace mxt
