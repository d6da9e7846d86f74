// RLOO against TRL's trainer (tools/golden/rloo.py), recipes that start from another, rewards that fail.
#include "e2e/trl.h"
#include "folders.h"

namespace mxt {
namespace {

std::string golden(const char* name) { return std::string(kSourceDir) + "/tests/golden/" + name; }

std::string rloo(const Json& c, const std::string& model, const std::string& extra = "") {
  const Json& s = c["settings"];
  std::string method =
      fmt::format("kind: rloo, num_generations: 3, max_completion_length: 13, kl_coef: {}, temperature: {}",
                  s["beta"].get<double>(), s["temperature"].get<double>());
  for (const char* key : {"epsilon", "epsilon_high", "num_iterations", "normalize_advantages"})
    if (s.contains(key)) method += fmt::format(", {}: {}", key, s[key].dump());
  return trl::rollouts_recipe(model, golden("grpo/rollouts.jsonl"), method, c["kind"] == "lora", extra);
}

class Rloo : public testing::TestWithParam<std::string> {};

TEST_P(Rloo, EqualsTrl) {
  const Json c = read_json_file(golden("rloo/expected.json"))[GetParam()];
  cli::Folder f("rloo");
  write_file_atomic(f / "r.yaml", rloo(c, trl::model_of(c["model"], f)));
  const auto r = cli::run("train " + (f / "r.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  trl::expect_steps(f / "out/metrics.jsonl", c["steps"], 0.1);
}

INSTANTIATE_TEST_SUITE_P(Golden, Rloo,
                         testing::Values("plain", "kl", "normalized", "iterations", "temperature", "full"),
                         [](const auto& i) { return i.param; });

TEST(RlooRuns, ResumeAmidTheIterationsKeepsTheBytes) {
  const Json c = read_json_file(golden("rloo/expected.json"))["iterations"];
  cli::Folder f("rloo_resume");
  write_file_atomic(f / "r.yaml", rloo(c, trl::model_of(c["model"], f), "  save_every: 5\n"));
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --out " + (f / "whole")).code, 0);
  ASSERT_EQ(cli::run("train " + (f / "r.yaml") + " --threads 1 --out " + (f / "other")).code, 0);
  const auto digest = [&](const char* out) {
    return hash_file(f / (std::string(out) + "/checkpoint/adapter_model.safetensors")).blake3;
  };
  EXPECT_EQ(digest("whole"), digest("other"));
  fs::remove_all(f / "other/checkpoint");
  const auto r = cli::run("train " + (f / "r.yaml") + " --threads 1 --resume-from 5 --out " + (f / "other"));
  ASSERT_EQ(r.code, 0) << r.out;
  EXPECT_EQ(digest("whole"), digest("other"));
}

std::string preference(const std::string& from) {
  return fmt::format(R"(meta: {{project: test, run_name: after}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{0}", torch_dtype: float32}}
data: {{source: local, path: "{1}", seq_len: 64, packing: false, shuffle: false}}
train:
  method: {{kind: dpo, lora: {{r: 4, alpha: 8, init_adapter: "recipe:{2}"}}}}
  precision: float32
  schedule: {{max_steps: 3}}
  batch: {{per_device: 2, grad_accum: 1}}
)",
                     cli::golden("qwen3_gqa"), golden("preference/pairs.jsonl"), from);
}

// An adapter that another recipe makes: that runs first, its checkpoint is what training starts from and is covered by
// the manifest, and a second run keeps it.
TEST(RecipesBefore, RunFirstAndAreCovered) {
  cli::Folder f("before");
  cli::Tiny first;
  first.method = "{kind: lora, r: 4, alpha: 8}";
  first.steps = 3;
  write_file_atomic(f / "first.yaml", cli::recipe(first));
  write_file_atomic(f / "after.yaml", preference(f / "first.yaml"));
  const auto r = cli::run("run " + (f / "after.yaml") + " --out " + (f / "out"));
  ASSERT_EQ(r.code, 0) << r.out;
  ASSERT_EQ(cli::run("train " + (f / "first.yaml") + " --out " + (f / "alone")).code, 0);
  const auto adapter = [&](const char* out) {
    return hash_file(f / (std::string(out) + "/checkpoint/adapter_model.safetensors")).blake3;
  };
  EXPECT_EQ(adapter("alone"), adapter("out/before/first"));
  EXPECT_NE(adapter("out"), adapter("alone"));
  EXPECT_TRUE(read_json_file(f / "out/manifest.json")["predicate"]["subjects"].contains("init_adapter"));
  const auto again = cli::run("run " + (f / "after.yaml") + " --out " + (f / "out"));
  EXPECT_EQ(again.code, 0) << again.out;
  EXPECT_EQ(cli::run("receipt " + (f / "out/manifest.json") + " --replay").code, 0);
  write_file_atomic(f / "itself.yaml", preference(f / "itself.yaml"));
  const auto endless = cli::run("run " + (f / "itself.yaml") + " --out " + (f / "endless"));
  EXPECT_EQ(endless.code, 1);
  EXPECT_NE(endless.out.find("one of them starts from itself"), std::string::npos) << endless.out;
  write_file_atomic(f / "none.yaml", preference("no_such_recipe"));
  const auto none = cli::run("run " + (f / "none.yaml") + " --out " + (f / "none"));
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.out.find("there is no recipe no_such_recipe"), std::string::npos) << none.out;
}

// A reward that fails stops the run with what was trained before it, or is worth what the recipe says.
TEST(RewardRuns, AFailureStopsTheRunOrHasAValue) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("reward_fails");
  const auto recipe = [&](const char* name, const std::string& script, const char* more) {
    const std::string text = fmt::format(R"(meta: {{project: test, run_name: rewards}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}"}}
data: {{source: synth, synth: {{task: addition, rows: 4, test_rows: 2}}, seq_len: 64}}
train:
  method:
    kind: rloo
    num_generations: 2
    kl_coef: 0
    max_completion_length: 3
    lora: {{r: 4}}
    rewards:
      - {{kind: answer}}
      - {{kind: command, command: [/bin/sh, -c, "{}"], name: judge{}}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 2}}
  batch: {{per_device: 2, grad_accum: 1}}
)",
                                         weights, script, more);
    write_file_atomic(f / name, text);
    return f / name;
  };
  // The second step's answers find the judge out of order.
  const std::string once = "if [ -e " + (f / "seen") + " ]; then exit 1; fi; : > " + (f / "seen") + "; echo 1; echo 0";
  const auto stopped = cli::run("train " + recipe("stop.yaml", once, "") + " --out " + (f / "stop"));
  EXPECT_EQ(stopped.code, 1) << stopped.out;
  EXPECT_NE(stopped.out.find("judge failed: /bin/sh ended with exit code 1"), std::string::npos) << stopped.out;
  EXPECT_TRUE(fs::exists(f / "stop/checkpoints/step-1"));
  fs::remove(f / "seen");
  const auto gone_on =
      cli::run("train " + recipe("value.yaml", once, ", error_value: 0.25") + " --out " + (f / "value"));
  ASSERT_EQ(gone_on.code, 0) << gone_on.out;
  const auto got = cli::lines(f / "value/metrics.jsonl");
  EXPECT_EQ(got.at(0)["rewards/judge/mean"], 0.5);
  EXPECT_EQ(got.at(1)["rewards/judge/mean"], 0.25);
  EXPECT_TRUE(got.at(1).contains("rewards/answer/std"));
}

// A policy that has read three sums done with a calculator calls it too: what it is told is no target, and the same run
// on another number of threads, or gone on with, ends in the same bytes. So with PPO, whose value model is asked of the
// policy's own tokens alone.
class ToolRuns : public testing::TestWithParam<const char*> {};

TEST_P(ToolRuns, ResultsAreMaskedAndTheBytesStay) {
  const std::string weights = std::string(kSourceDir) + "/weights/SmolLM2-135M-Instruct.gguf";
  if (!fs::exists(weights)) GTEST_SKIP() << "no weights: run ./dev weights";
  cli::Folder f("tool_turns");
  std::string rows;
  for (const auto& [a, b] : {std::pair{19, 64}, {72, 23}}) {
    OrderedJson messages = OrderedJson::array();
    const auto add = [&](const char* role, const std::string& content) {
      messages.push_back({{"role", role}, {"content", content}});
    };
    for (const auto& [x, y] : {std::pair{12, 30}, {25, 61}, {44, 17}}) {
      add("user", fmt::format("What is {} + {}?", x, y));
      add("assistant", "");
      const OrderedJson call{{"name", "calculator"}, {"arguments", {{"expression", fmt::format("{}+{}", x, y)}}}};
      messages.back()["tool_calls"] = OrderedJson::array({{{"type", "function"}, {"function", call}}});
      add("tool", std::to_string(x + y));
      add("assistant", std::to_string(x + y));
    }
    add("user", fmt::format("What is {} + {}?", a, b));
    add("assistant", std::to_string(a + b));
    rows +=
        OrderedJson{
            {"tools",
             {{{"type", "function"},
               {"function",
                {{"name", "calculator"},
                 {"description", "Value of an expression"},
                 {"parameters", {{"type", "object"}, {"properties", {{"expression", {{"type", "string"}}}}}}}}}}}},
            {"messages", messages}}
            .dump() +
        "\n";
  }
  write_file_atomic(f / "rows.jsonl", rows);
  write_file_atomic(f / "r.yaml", fmt::format(R"(meta: {{project: test, run_name: tools}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}"}}
data: {{source: local, path: "{}", seq_len: 768, tools_in: system, shuffle: false}}
train:
  method: {{{}, num_generations: 4, kl_coef: 0.1, max_completion_length: 80,
            temperature: 0.5, lora: {{r: 4}}, tools: [{{kind: calculator}}], rewards: [{{kind: answer}}]}}
  optimizer: {{lr: 1.0e-3}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 2}}
  batch: {{per_device: 8, grad_accum: 1}}
  save_every: 1
)",
                                              weights, f / "rows.jsonl", GetParam()));
  const auto run = [&](const char* out, const char* more) {
    const auto r = cli::run("train " + (f / "r.yaml") + more + " --out " + (f / out));
    EXPECT_EQ(r.code, 0) << r.out;
  };
  run("whole", " --threads 2");
  run("other", " --threads 1");
  const auto digest = [&](const char* out, const char* file) {
    return hash_file(f / (std::string(out) + "/" + file)).blake3;
  };
  constexpr const char* kAdapter = "checkpoint/adapter_model.safetensors";
  EXPECT_EQ(digest("whole", kAdapter), digest("other", kAdapter));
  EXPECT_EQ(digest("whole", "rollouts.jsonl"), digest("other", "rollouts.jsonl"));
  fs::remove_all(f / "other/checkpoint");
  run("other", " --threads 1 --resume-from 1");
  EXPECT_EQ(digest("whole", kAdapter), digest("other", kAdapter));
  int64_t answered = 0;
  double own_values = 0, result_values = 0;  // of a value model
  for (const Json& line : cli::lines(f / "whole/rollouts.jsonl"))
    for (const Json& c : line["completions"]) {
      const int64_t calls = c.value("calls", int64_t{0});
      answered += calls > 0;
      int64_t own = 0;
      for (const Json& x : c["mask"]) own += x.get<int64_t>();
      EXPECT_EQ(own < static_cast<int64_t>(c["mask"].size()), calls > 0);
      if (calls > 0) {
        EXPECT_EQ(c["turns"][1]["role"], "tool");
      }
      if (!c.contains("old_values")) continue;
      ASSERT_EQ(c["old_values"].size(), c["mask"].size() + 1);
      for (size_t t = 0; t < c["mask"].size(); ++t) {
        const double value = c["old_values"][t];
        (c["mask"][t] == 0 ? result_values : own_values) += std::abs(value);
      }
    }
  EXPECT_GT(answered, 0);
  EXPECT_EQ(result_values, 0);
  EXPECT_EQ(own_values > 0, std::string(GetParam()).starts_with("kind: ppo"));
  EXPECT_GT(cli::lines(f / "whole/metrics.jsonl").at(0)["tools/call_frequency"].get<double>(), 0);
  // Rollouts with a mask are what train.rollouts.path reads.
  std::string recipe = read_file(f / "r.yaml");
  recipe += fmt::format("  rollouts: {{path: \"{}\"}}\n", f / "whole/rollouts.jsonl");
  write_file_atomic(f / "given.yaml", recipe);
  const auto given = cli::run("train " + (f / "given.yaml") + " --out " + (f / "given"));
  EXPECT_EQ(given.code, 0) << given.out;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ToolRuns,
                         testing::Values("kind: grpo, num_iterations: 2", "kind: ppo, inner_epochs: 1"),
                         [](const auto& i) { return std::string(i.param).substr(6, 3); });

}  // namespace
}  // namespace mxt
