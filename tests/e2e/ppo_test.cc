// PPO over given answers against its definition written out in PyTorch (tools/golden/ppo.py): twelve steps each; and
// over answers of its own, judged by a reward model.
#include "e2e/trl.h"
#include "folders.h"

namespace mxt {
namespace {

std::string golden(const char* name) { return std::string(kSourceDir) + "/tests/golden/" + name; }

std::string ppo(const Json& c, const std::string& model, const std::string& extra = "") {
  std::string method = "kind: ppo, num_generations: 3, max_completion_length: 13";
  for (const auto& [key, value] : c["settings"].items()) method += fmt::format(", {}: {}", key, value.dump());
  const std::string rows = c.value("rows", "grpo/rollouts.jsonl");
  return trl::rollouts_recipe(model, golden(rows.c_str()), method, c["kind"] == "lora", extra);
}

class Ppo : public testing::TestWithParam<std::string> {};

TEST_P(Ppo, EqualsItsDefinition) {
  const Json c = read_json_file(golden("ppo/expected.json"))[GetParam()];
  cli::Folder f("ppo");
  write_file_atomic(f / "r.yaml", ppo(c, trl::model_of(c["model"], f)));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  trl::expect_steps(f / "out/metrics.jsonl", c["steps"], 0.1);
}

INSTANTIATE_TEST_SUITE_P(Golden, Ppo, testing::Values("plain", "free", "tight", "temperature", "full", "results"),
                         [](const auto& i) { return i.param; });

TEST(PpoRuns, ResumeAmidTheEpochsKeepsTheBytes) {
  const Json c = read_json_file(golden("ppo/expected.json"))["plain"];
  cli::Folder f("ppo_resume");
  write_file_atomic(f / "r.yaml", ppo(c, trl::model_of(c["model"], f), "  save_every: 5\n"));
  const auto run = [&](const char* out, const char* more) {
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / out) + more);
    EXPECT_EQ(r.code, 0) << r.out;
    return hash_file(f / (std::string(out) + "/checkpoint/adapter_model.safetensors")).blake3;
  };
  const std::string whole = run("whole", " --threads 2");
  EXPECT_EQ(run("other", " --threads 1"), whole);
  fs::remove_all(f / "other/checkpoint");
  EXPECT_EQ(run("other", " --threads 1 --resume-from 5"), whole);
  fs::remove_all(f / "other/checkpoints/value");
  const auto r = cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 5 --out " + (f / "other"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("the value model's state is missing"), std::string::npos) << r.out;
}

// Policy, reference and value model never run together: what kernels keep is there once. A tiny model's own activations
// are far less.
TEST(PpoRuns, ThePlanCountsWhatKernelsKeepOnce) {
  const Json c = read_json_file(golden("ppo/expected.json"))["plain"];
  cli::Folder f("ppo_plan");
  write_file_atomic(f / "r.yaml", ppo(c, trl::model_of(c["model"], f)));
  const auto r = cli::run("plan " + (f / "r.yaml") + " --json");
  ASSERT_EQ(r.code, 0) << r.out;
  const Json kinds = Json::parse(r.out.substr(r.out.find("{\n")))["categories"];
  EXPECT_LT(kinds["activations"].get<int64_t>(), kinds["workspace"].get<int64_t>() / 2);
}

// Reinforcement has no loss of its own on rows that nobody sampled.
TEST(PpoRuns, AHeldOutLossIsRefused) {
  const Json c = read_json_file(golden("ppo/expected.json"))["plain"];
  cli::Folder f("ppo_eval");
  write_file_atomic(f / "r.yaml", ppo(c, trl::model_of(c["model"], f), "  eval_every: 1\n"));
  const auto r = cli::run("validate " + (f / "r.yaml"));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_NE(r.out.find("train.eval_every: is for a loss on held-out rows"), std::string::npos) << r.out;
}

// The whole chain in one command: a reward model that another recipe makes judges what the policy samples.
TEST(PpoRuns, ARewardModelThatARecipeMakesJudgesTheAnswers) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("ppo_chain");
  const auto recipe = [&](const char* name, const char* task, int rows, const std::string& method, int per_device) {
    write_file_atomic(f / (std::string(name) + ".yaml"), fmt::format(R"(meta: {{project: test, run_name: {}}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}"}}
data: {{source: synth, synth: {{task: {}, rows: {}, test_rows: 2}}, seq_len: 256, packing: false}}
train:
  method: {{{}}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 2}}
  batch: {{per_device: {}, grad_accum: 1}}
)",
                                                                     name, weights, task, rows, method, per_device));
    return f / (std::string(name) + ".yaml");
  };
  const std::string judge = recipe("judge", "tool_preference", 2, "kind: reward, lora: {r: 4}", 1);
  const std::string policy =
      recipe("policy", "addition", 4,
             "kind: ppo, num_generations: 2, inner_epochs: 2, max_completion_length: 3, lora: {r: 4}, rewards: [{kind: "
             "answer}, {kind: model, model: \"recipe:" +
                 judge + "\", weight: 0.5}]",
             4);
  const auto r = cli::run("run " + policy + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_TRUE(read_json_file(f / "out/manifest.json")["predicate"]["subjects"].contains("reward_model judge"));
  const auto steps = cli::lines(f / "out/metrics.jsonl");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[0].contains("rewards/model/mean"));
  EXPECT_NE(steps[0]["rewards/model/std"], 0.0);
  const Json row = cli::lines(f / "out/rollouts.jsonl").at(0), answer = row["completions"][0];
  EXPECT_NEAR(answer["reward"],
              answer["rewards"]["answer"].get<double>() + 0.5 * answer["rewards"]["model"].get<double>(), 1e-6);
  EXPECT_EQ(answer["old_values"].size(), answer["ids"].size() + 1);
  // What judged them says the same of the same tokens afterwards.
  Json ids = row["prompt_ids"];
  for (const Json& id : answer["ids"]) ids.push_back(id);
  write_file_atomic(f / "rows.jsonl", Json{{"ids", ids}}.dump() + "\n");
  const auto scored =
      cli::run("score --reward --dtype bfloat16 --model " + weights + " --adapter " +
               (f / "out/before/judge/checkpoint") + " --input " + (f / "rows.jsonl") + " --output " + (f / "s.jsonl"));
  ASSERT_EQ(scored.code, 0) << scored.out;
  EXPECT_EQ(cli::lines(f / "s.jsonl").at(0)["reward"], answer["rewards"]["model"]);
}

TEST(PpoRuns, WhatIsNoRewardModelIsNamed) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("ppo_bad");
  const auto says = [&](const std::string& judge, const char* out, const char* text, const std::string& where = "") {
    write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: bad}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}"}}
data: {{source: synth, synth: {{task: addition, rows: 2, test_rows: 2}}, seq_len: 64, packing: false}}
train:
  method: {{kind: ppo, num_generations: 1, reward: model, reward_model: "{}", lora: {{r: 4}}}}
  schedule: {{max_steps: 1}}
  batch: {{per_device: 2, grad_accum: 1}}
)",
                                                weights, judge));
    const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / out), where);
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_NE(r.out.find(text), std::string::npos) << r.out;
    EXPECT_FALSE(fs::exists(f / (std::string(out) + "/metrics.jsonl")));
    return fs::exists(f / (std::string(out) + "/dataset"));
  };
  says(weights, "language_model", "it is no reward model");
  says(cli::golden("qwen3_gqa"), "no_head", "holds no score.weight");
  // Of the Hub, which is asked before rows are prepared.
  const std::string commit(40, 'a'), repo = f / "hub/models--org--judge";
  make_folders(repo + "/refs"), make_folders(repo + "/snapshots");
  write_file_atomic(repo + "/refs/main", commit);
  fs::copy(cli::golden("qwen3_gqa"), repo + "/snapshots/" + commit);
  EXPECT_FALSE(says("org/judge", "of_the_hub", "org/judge: holds no score.weight",
                    "HF_HUB_OFFLINE=1 HF_HUB_CACHE=" + (f / "hub")));
  // One that has a head, and no tokenizer beside it.
  const std::string head = R"({"score.weight":{"dtype":"F32","shape":[1,8],"data_offsets":[0,32]}})";
  make_folders(f / "judge");
  write_file_atomic(f / "judge/config.json", read_file(cli::golden("qwen3_gqa") + "/config.json"));
  write_file_atomic(f / "judge/model.safetensors",
                    std::string{static_cast<char>(head.size()), 0, 0, 0, 0, 0, 0, 0} + head + std::string(32, '\0'));
  says(f / "judge", "other_tokens", "another tokenizer than the policy");
}

}  // namespace
}  // namespace mxt
