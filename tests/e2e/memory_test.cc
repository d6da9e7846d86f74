// What a run is planned to hold, beside what it held; and the run that does not fit.
#include "e2e/cli.h"
#include "folders.h"
#include "sanitizer.h"

namespace mxt {
namespace {

std::string recipe(const std::string& tokenizer, const std::string& data, const std::string& method) {
  return fmt::format(R"(meta: {{project: test, run_name: memory}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model:
  name: random
  init: random
  torch_dtype: float32
  tokenizer: {}
  config: {{model_type: llama, vocab_size: 32768, hidden_size: 256, intermediate_size: 768, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 256, tie_word_embeddings: true}}
data: {{{}, seq_len: 128, packing: false}}
train:
  method: {}
  precision: float32
  batch: {{per_device: 8, grad_accum: 1}}
  schedule: {{max_steps: 1}}
)",
                     tokenizer, data, method);
}

// Eight rows of so many tokens, all of them trained.
std::string rows_of(int tokens, int vocabulary) {
  std::string rows;
  for (int i = 0; i < 8; ++i) {
    std::string ids;
    for (int t = 0; t < tokens; ++t) ids += (t ? "," : "") + std::to_string((i * 131 + t * 251) % vocabulary);
    rows += "{\"input_ids\":[" + ids + "],\"labels\":[" + ids + "]}\n";
  }
  return rows;
}

int64_t planned(const std::string& path) {
  const auto r = cli::run("plan --json --threads 2 " + path);
  EXPECT_EQ(r.code, 0) << r.out;
  return Json::parse(r.out.substr(r.out.find("{\n")))["peak_bytes"]["host"];
}

int64_t held(const std::string& path, const std::string& out) {
  const auto r = cli::run("train --threads 2 " + path + " --out " + out);
  EXPECT_EQ(r.code, 0) << r.out;
  return cli::lines(out + "/metrics.jsonl").back()["peak_memory_bytes"];
}

TEST(Memory, OfASmallRunIsPlannedWithItsProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers hold memory of their own";
#endif
  cli::Folder f("held");
  write_file_atomic(f / "rows.jsonl", rows_of(128, 32000));
  write_file_atomic(f / "r.yaml",
                    recipe("null", "source: local, path: \"" + (f / "rows.jsonl") + "\"", "{kind: lora, r: 4}"));
  // Beside other tests more of the files' pages is held at times: the run that held least is the program's own.
  const auto plan = static_cast<double>(planned(f / "r.yaml")),
             had = static_cast<double>(
                 std::min({held(f / "r.yaml", f / "a"), held(f / "r.yaml", f / "b"), held(f / "r.yaml", f / "c")}));
  EXPECT_NEAR(plan / had, 1, 0.04) << plan << " planned, " << had << " held";
}

// Logits of a step are of its answers' tokens, not of all that the head takes at once.
TEST(Memory, OfShortAnswersIsPlannedForTheirLogits) {
  cli::Folder f("answers");
  write_file_atomic(f / "rows.jsonl", "{\"prompt\": \"one and one\", \"answer\": \"two\"}\n");
  write_file_atomic(f / "text.txt", "one and one and two");
  ASSERT_EQ(cli::run("tokenizer train --input " + (f / "text.txt") + " --vocab-size 257 --out " + (f / "own")).code, 0);
  const auto plan = [&](int answer) {
    write_file_atomic(f / "r.yaml",
                      recipe("\"" + (f / "own") + "\"", "source: local, path: \"" + (f / "rows.jsonl") + "\"",
                             fmt::format("{{kind: grpo, num_generations: 2, max_completion_length: {}, rewards: "
                                         "[{{kind: answer}}], lora: {{r: 4}}}}",
                                         answer)));
    const auto r = cli::run("plan --json --threads 2 " + (f / "r.yaml"));
    EXPECT_EQ(r.code, 0) << r.out;
    return Json::parse(r.out.substr(r.out.find("{\n")))["categories"]["logits"].get<double>();
  };
  const double row = 32768 * 4;
  EXPECT_LT(plan(4), 2 * 8 * 4 * row + (8 << 20));  // of the step and of what scores
  EXPECT_GT(plan(100), 256 * row);
}

TEST(Memory, ARunThatDoesNotFitIsRefusedWithChangesThatMakeItFit) {
  if (test::kAddressSanitizer) GTEST_SKIP() << "the address sanitizer does not start under a limit of addresses";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers reserve more address space than any limit";
#endif
  // A model whose activations are most of what it takes, and an address space that is too small for them.
  cli::Folder f("fit");
  write_file_atomic(f / "rows.jsonl", rows_of(512, 200));
  write_file_atomic(f / "r.yaml", R"(meta: {project: test, run_name: fit}
hardware: {name: cpu}
autotune: {enabled: false}
model:
  name: random
  init: random
  config: {model_type: llama, vocab_size: 256, hidden_size: 512, intermediate_size: 2048, num_hidden_layers: 16, num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 512, rms_norm_eps: 1.0e-5, tie_word_embeddings: true, hidden_act: silu}
data: {source: local, path: ")" + (f / "rows.jsonl") +
                                      R"(", seq_len: 512, packing: false}
train:
  method: {kind: lora, r: 8}
  batch: {per_device: 8, grad_accum: 1}
  micro_batch: 8
  gradient_checkpointing: false
  schedule: {max_steps: 1}
)");
  const Json needs = Json::parse(cli::run("plan " + (f / "r.yaml") + " --json").out);
  const auto peak = needs["peak_bytes"]["host"].get<int64_t>(),
             activations = needs["categories"]["activations"].get<int64_t>();
  ASSERT_GT(activations, 600 << 20);
  const std::string limit = fmt::format("ulimit -v {};", (peak - activations / 4) / 1024);
  const auto said = cli::run("plan " + (f / "r.yaml") + " --json", limit);
  ASSERT_EQ(said.code, 0) << said.out;
  const Json plan = Json::parse(said.out);
  EXPECT_FALSE(plan["fits"].get<bool>());
  ASSERT_EQ(plan["changes_that_fit"].size(), 3u) << said.out;
  EXPECT_EQ(plan["changes_that_fit"][0]["change"], "train.micro_batch: 4");
  for (const auto& x : plan["changes_that_fit"]) EXPECT_LT(x["bytes"].get<int64_t>(), peak);
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"), limit);
  EXPECT_EQ(r.code, 1) << r.out;
  for (const char* word : {"r.yaml", "of memory", "train.micro_batch: 4", "train.gradient_checkpointing: true"})
    EXPECT_NE(r.out.find(word), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f / "out/metrics.jsonl"));
}

}  // namespace
}  // namespace mxt
