// GRPO, its loss types and GSPO over given rollouts against TRL's trainer (tools/golden/grpo.py): twelve steps each.
#include "e2e/trl.h"
#include "folders.h"

namespace mxt {
namespace {

std::string grpo_folder() { return std::string(kSourceDir) + "/tests/golden/grpo"; }

std::string recipe(const Json& c, const cli::Folder& f, const std::string& rows, const std::string& extra = "") {
  const Json& s = c["settings"];
  const bool gspo = s.value("importance_sampling_level", "token") == "sequence";
  std::string method = fmt::format(
      "kind: {}, num_generations: 3, max_completion_length: 13, kl_coef: {}, temperature: {}, loss_type: {}, epsilon: "
      "{}",
      gspo ? "gspo" : "grpo", s["beta"].get<double>(), s["temperature"].get<double>(),
      s["loss_type"].get<std::string>(), s.value("epsilon", 0.2));
  if (s.contains("epsilon_high")) method += fmt::format(", epsilon_high: {}", s["epsilon_high"].get<double>());
  if (s.contains("delta")) method += fmt::format(", delta: {}", s["delta"].get<double>());
  if (s.contains("scale_rewards")) method += ", scale_rewards: " + s["scale_rewards"].get<std::string>();
  if (s.contains("num_iterations")) method += fmt::format(", num_iterations: {}", s["num_iterations"].get<int>());
  if (s.value("mask_truncated_completions", false)) method += ", mask_truncated_completions: true";
  if (!s.value("use_bias_correction_kl", true)) method += ", use_bias_correction_kl: false";
  const std::string model = trl::model_of(c["model"], f);
  return trl::rollouts_recipe(model, rows, method, c["kind"] == "lora", extra);
}

Json expected() { return read_json_file(grpo_folder() + "/expected.json"); }

class Grpo : public testing::TestWithParam<std::string> {};

TEST_P(Grpo, EqualsTrl) {
  const Json c = expected()[GetParam()];
  cli::Folder f("grpo");
  write_file_atomic(f / "r.yaml", recipe(c, f, grpo_folder() + "/" + c["rows"].get<std::string>()));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  trl::expect_steps(f / "out/metrics.jsonl", c["steps"], 0.1);
}

INSTANTIATE_TEST_SUITE_P(Golden, Grpo,
                         testing::Values("dapo", "grpo", "bnpo", "dr_grpo", "batch", "kl", "kl_plain", "iterations",
                                         "truncated", "temperature", "gspo", "gspo_kl", "gspo_truncated", "old",
                                         "old_delta", "old_delta_gspo", "full", "bounded"),
                         [](const auto& i) { return i.param; });

// A prompt that its answers have once is the prompt that each has: the same steps, to rounding, from fewer tokens.
TEST(GrpoRuns, SharedPromptsGiveTheStepsOfSeparateOnes) {
  for (const char* name : {"gspo_kl", "full", "iterations"}) {
    SCOPED_TRACE(name);
    const Json c = expected()[name];
    cli::Folder f("grpo_shared");
    std::vector<Json> steps[2];
    for (const bool shared : {false, true}) {
      std::string text = recipe(c, f, grpo_folder() + "/" + c["rows"].get<std::string>());
      const size_t at = text.find("num_generations: 3");
      ASSERT_NE(at, std::string::npos);
      text.insert(at, shared ? "share_prompts: true, " : "share_prompts: false, ");
      write_file_atomic(f / "r.yaml", text);
      const auto plan = cli::run("plan " + (f / "r.yaml"));
      ASSERT_EQ(plan.code, 0) << plan.out;
      EXPECT_NE(plan.out.find(shared ? "once a pass for all answers of a prompt" : "once for each answer"),
                std::string::npos)
          << plan.out;
      const std::string out = f / (shared ? "shared" : "apart");
      const auto r = cli::run("train " + (f / "r.yaml") + " --out " + out);
      ASSERT_EQ(r.code, 0) << r.out;
      steps[shared] = cli::lines(out + "/metrics.jsonl");
    }
    ASSERT_EQ(steps[0].size(), steps[1].size());
    for (size_t i = 0; i < steps[0].size(); ++i)
      for (const char* key : {"loss", "grad_norm", "entropy"}) {
        const double apart = steps[0][i][key], shared = steps[1][i][key];
        EXPECT_NEAR(shared, apart, 1e-5 * std::max(std::abs(apart), 0.1)) << key << " of step " << i + 1;
      }
    EXPECT_LT(steps[1].back()["tokens"].get<int64_t>(), steps[0].back()["tokens"].get<int64_t>());
  }
}

TEST(GrpoRuns, ResumeAmidTheIterationsKeepsTheBytes) {
  cli::Folder f("grpo_resume");
  write_file_atomic(f / "r.yaml",
                    recipe(expected()["gspo_kl"], f, grpo_folder() + "/rollouts.jsonl", "  save_every: 4\n"));
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 2 --out " + (f / "whole")).code, 0);
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --out " + (f / "other")).code, 0);
  const auto digest = [&](const char* out) {
    return hash_file(f / (std::string(out) + "/checkpoint/adapter_model.safetensors")).blake3;
  };
  EXPECT_EQ(digest("whole"), digest("other"));
  fs::remove_all(f / "other/checkpoint");
  const auto r =
      cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 4 --out " + (f / "other"));  // of iterations 3
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(digest("whole"), digest("other"));
}

// Sampler and trainer are one engine over one copy of the weights: the same run on one thread and on two, and one that
// goes on amid its iterations, sample the same answers and end in the same bytes.
TEST(GrpoRuns, SamplesTheSameHoweverItRuns) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("grpo_live");
  write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: grpo_live}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}"}}
data: {{source: synth, synth: {{task: arithmetic, rows: 4, test_rows: 2}}, seq_len: 64}}
train:
  method: {{kind: grpo, num_generations: 4, num_iterations: 2, kl_coef: 0.1, max_completion_length: 4, lora: {{r: 4}}}}
  optimizer: {{lr: 1.0e-3}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 4}}
  batch: {{per_device: 8, grad_accum: 1}}
  save_every: 1
  keep_last: 4
)",
                                              weights));
  const auto run = [&](const char* out, const char* more) {
    return cli::run("train " + (f / "r.yaml") + " --threads " + (std::string(out) == "two" ? "2" : "1") + " --out " +
                    (f / out) + more);
  };
  for (const char* out : {"two", "one"}) {
    const auto r = run(out, "");
    ASSERT_EQ(r.code, 0) << r.out;
  }
  const auto file = [&](const char* out, const char* name) { return read_file(f / (std::string(out) + "/" + name)); };
  const std::string adapter = "checkpoint/adapter_model.safetensors";
  EXPECT_EQ(file("two", "rollouts.jsonl"), file("one", "rollouts.jsonl"));
  EXPECT_EQ(file("two", adapter.c_str()), file("one", adapter.c_str()));
  const auto rows = cli::lines(f / "two/rollouts.jsonl");
  ASSERT_EQ(rows.size(), 4u);  // two prompts for each of two draws
  EXPECT_EQ(rows[0]["completions"].size(), 4u);
  EXPECT_TRUE(rows[0]["completions"][0].contains("text"));
  // What counts as the old log-probabilities is what training differentiates, to the bit and in bfloat16 too; sampling
  // rounds otherwise. The second step on a batch of answers has another policy.
  const auto steps = cli::lines(f / "two/metrics.jsonl");
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_LT(std::abs(steps[i]["sampler_difference"].get<double>()), 0.05);
    EXPECT_NE(steps[i]["sampler_difference"].get<double>(), 0);
    ASSERT_EQ(steps[i].contains("sampler_trainer_kl"), i % 2 == 0);
    if (i % 2 == 0) {
      EXPECT_EQ(steps[i]["sampler_trainer_kl"].get<double>(), 0);
    }
  }
  fs::remove_all(f / "one/checkpoint");
  const auto r = run("one", " --resume-from 3");
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(file("two", adapter.c_str()), file("one", adapter.c_str()));
}

// A random Qwen3 that answers four sums in eight tokens; two steps in bfloat16.
std::string tiny_recipe(const cli::Folder& f, const std::string& method, const std::string& more = "") {
  std::string rows;
  for (const char* prompt : {"3+4=", "1+8=", "2+2=", "5+3="})
    rows += fmt::format("{{\"prompt\": \"{}\", \"answer\": \"7\"}}\n", prompt);
  write_file_atomic(f / "rows.jsonl", rows);
  write_file_atomic(f / "text.txt", rows);
  const auto made =
      cli::run("tokenizer train --input " + (f / "text.txt") + " --vocab-size 260 --out " + (f / "tokenizer"));
  EXPECT_EQ(made.code, 0) << made.out;
  return fmt::format(R"(meta: {{project: test, run_name: tiny}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model:
  name: tiny
  init: random
  tokenizer: "{}"
  config: {{model_type: qwen3, vocab_size: 272, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2,
           num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, max_position_embeddings: 64,
           tie_word_embeddings: true}}
data: {{source: local, path: "{}", seq_len: 64, packing: false}}
train:
  method: {{{}, max_new_tokens: 8, reward: answer, lora: {{r: 4, alpha: 8}}}}
  batch: {{per_device: 8, grad_accum: 1}}
  schedule: {{max_steps: 2}}
  precision: bfloat16
{})",
                     f / "tokenizer", f / "rows.jsonl", method, more);
}

// The head of such a base keeps its columns besides, for the gradient: what only writes has no use for them.
TEST(GrpoRuns, ABaseHeldInEightBitsIsSampledFromToo) {
  cli::Folder f("grpo_fp8");
  write_file_atomic(f / "r.yaml", tiny_recipe(f, "kind: grpo, num_generations: 4", "  base_precision: fp8_e4m3\n"));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const std::string log = read_file(f / "out/rollouts.jsonl");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4);  // two prompts a step
}

class LiveRuns : public testing::TestWithParam<const char*> {};

// Where the method scores the policy before the step it does so by another program than the step's.
TEST_P(LiveRuns, WhatCountsAsOldIsWhatTrainingDifferentiates) {
  cli::Folder f("live");
  write_file_atomic(f / "r.yaml", tiny_recipe(f, GetParam()));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  const auto steps = cli::lines(f / "out/metrics.jsonl");
  ASSERT_EQ(steps.size(), 2u);
  for (const Json& m : steps) {
    EXPECT_EQ(m["sampler_trainer_kl"].get<double>(), 0);
    EXPECT_NE(m["sampler_difference"].get<double>(), 0);
  }
  // What the answers are held against is asked while they are sampled, where anything is.
  const Json receipt = read_json_file(f / "out/receipt.json");
  ASSERT_EQ(receipt.contains("reference"), !std::string(GetParam()).starts_with("kind: gspo"));
  if (receipt.contains("reference")) {
    EXPECT_EQ(receipt["reference"]["log_probabilities"], "live");
    EXPECT_EQ(receipt["reference"]["policy"], "the base, without the adapter");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LiveRuns,
                         testing::Values("kind: grpo, num_generations: 4", "kind: gspo, num_generations: 4",
                                         "kind: rloo, num_generations: 4, kl_coef: 0.1",
                                         "kind: ppo, num_generations: 2, inner_epochs: 1"),
                         [](const auto& i) { return std::string(i.param, 6, std::string(i.param).find(',') - 6); });

// The step is taken, and changes nothing but what weight decay does: it is said why, once, and how often.
TEST(GrpoRuns, StepsThatTeachNothingAreSaidAndCounted) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([{"ids":[4,1],"reward":1},{"ids":[5,1],"reward":1},{"ids":[6,1],"reward":1}])", "every group are equal"},
      {R"([{"ids":[4,1],"reward":null},{"ids":[5,1],"reward":null},{"ids":[6,1],"reward":null}])",
       "no answer could be scored"},
      {R"([{"ids":[4],"reward":1},{"ids":[5],"reward":0},{"ids":[6],"reward":2}])", "every answer was cut off"}};
  for (const auto& [completions, why] : cases) {
    SCOPED_TRACE(why);
    cli::Folder f("grpo_flat");
    const std::string row = std::string(R"({"prompt_ids":[3],"completions":)") + completions + "}\n";
    write_file_atomic(f / "rows.jsonl", row + row);
    write_file_atomic(f / "r.yaml", recipe(expected()["truncated"], f, f / "rows.jsonl"));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    ASSERT_EQ(r.code, 0) << r.out;
    EXPECT_NE(r.out.find(why), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("12 steps had answers that teach nothing"), std::string::npos) << r.out;
    EXPECT_EQ(cli::lines(f / "out/metrics.jsonl").at(0)["grad_norm"], 0.0);
  }
}

// Of a model that never ends an answer none is known to be cut off: nothing would be left out.
TEST(GrpoRuns, CutAnswersAreLeftOutOfModelsWithAnEndAlone) {
  cli::Folder f("grpo_endless");
  const std::string row =
      R"({"prompt_ids":[3],"completions":[{"ids":[4],"reward":1},{"ids":[5],"reward":0},{"ids":[6],"reward":2}]})";
  write_file_atomic(f / "rows.jsonl", row + "\n" + row + "\n");
  write_file_atomic(f / "r.yaml", recipe(expected()["truncated"], f, f / "rows.jsonl"));
  OrderedJson config = parse_ordered_json(read_file(f / "model/config.json"), "config.json");
  config["eos_token_id"] = nullptr;
  write_file_atomic(f / "model/config.json", config.dump());
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("mask_truncated_completions: "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("has no end token"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(f / "out/dataset"));
}

TEST(GrpoRuns, RolloutsThatCannotBeUsedAreNamed) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"prompt_ids":[],"completions":[]})", "\"prompt_ids\" must be a list"},
      {R"({"prompt_ids":[3],"completions":[{"ids":[4],"reward":1}]})", "num_generations is 3"},
      {R"({"prompt_ids":[3],"completions":[{"ids":[4]},{"ids":[4]},{"ids":[4]}]})", "has no \"reward\""},
      {R"({"prompt_ids":[3],"completions":[{"ids":[400],"reward":1},{"ids":[4],"reward":1},{"ids":[4],"reward":1}]})",
       "vocabulary has 96 tokens"},
      {R"({"prompt_ids":[3],"completions":[{"ids":[4],"reward":1,"old_logprobs":[]},{"ids":[4],"reward":1},{"ids":[4],"reward":1}]})",
       "one number for each of the 1 ids"},
      {R"({"prompt_ids":[3],"completions":[{"ids":[4],"reward":1,"old_logprobs":[0.5]},{"ids":[4],"reward":1},{"ids":[4],"reward":1}]})",
       "a log-probability is at most 0"},
      {R"({"prompt_ids":[3],"completions":[{"ids":[4],"reward":1,"old_logprobs":[-1]},{"ids":[4],"reward":1},{"ids":[4],"reward":1}]})",
       "completion 1 has no old_logprobs, unlike the first"},
      {"nonsense", "not valid JSON"},
  };
  for (const auto& [row, message] : bad) {
    cli::Folder f("grpo_bad");
    write_file_atomic(f / "rows.jsonl", std::string(row) + "\n");
    write_file_atomic(f / "r.yaml", recipe(expected()["dapo"], f, f / "rows.jsonl"));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
    EXPECT_EQ(r.code, 1) << row << "\n" << r.out;
    EXPECT_NE(r.out.find(message), std::string::npos) << r.out;
    EXPECT_NE(r.out.find((f / "rows.jsonl") + ":1"), std::string::npos) << r.out;  // the user's file
  }
}

TEST(GrpoRuns, RolloutsThatAreNotThereAreSaidBeforeARun) {
  cli::Folder f("grpo_absent");
  write_file_atomic(f / "r.yaml", recipe(expected()["dapo"], f, f / "rows.jsonl"));
  for (const char* verb : {"validate ", "plan ", "train "}) {
    const auto r = cli::run(verb + (f / "r.yaml"));
    EXPECT_EQ(r.code, 1) << verb << r.out;
    EXPECT_NE(r.out.find("train.rollouts.path: " + (f / "rows.jsonl") + " is no file"), std::string::npos) << r.out;
  }
}

}  // namespace
}  // namespace mxt
