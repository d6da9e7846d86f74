// A prompt that several answers have once in a pass: the steps are those of answers with a prompt each.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "config/recipe.h"
#include "folders.h"
#include "kernels/backend.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace mxt::train {
namespace {

std::string golden(const std::string& model) { return std::string(kSourceDir) + "/tests/golden/models/" + model; }

// Three answers to each of six prompts: of one token, of two, longer than a window, the same twice.
std::string rollouts(const std::string& folder) {
  std::mt19937 draw(3);
  const auto ids = [&](size_t n) {
    std::vector<int32_t> out(n);
    for (int32_t& id : out) id = static_cast<int32_t>(3 + draw() % 80);
    return out;
  };
  std::string text;
  std::vector<int32_t> prompt;
  for (const size_t length : {1, 17, 30, 30, 2, 9}) {
    if (prompt.size() != length || length != 30) prompt = ids(length);
    OrderedJson j{{"prompt_ids", prompt}};
    for (const size_t answer : {1 + length % 5, size_t{12}, size_t{6}})
      j["completions"].push_back({{"ids", ids(answer)}, {"reward", static_cast<double>(draw() % 100) / 10}});
    text += j.dump() + "\n";
  }
  make_folders(folder);
  write_file_atomic(folder + "/rollouts.jsonl", text);
  return folder + "/rollouts.jsonl";
}

struct Asked {
  std::string model = "qwen3_gqa", kind = "grpo", more = "kl_coef: 0.1, lora: {r: 4}", type = "float32";
  bool share = true;
  int micro = 6, threads = 2;
};

config::Recipe recipe_of(const Asked& a, const std::string& rows) {
  return config::parse_recipe(fmt::format(R"(meta: {{project: test, run_name: shared}}
hardware: {{name: cpu}}
autotune: {{enabled: false}}
model: {{name: "{}", torch_dtype: float32}}
data: {{source: local, path: "{}", seq_len: 64, shuffle: false}}
train:
  method: {{kind: {}, num_generations: 3, max_completion_length: 12, share_prompts: {}, {}}}
  rollouts: {{path: "{}"}}
  precision: {}
  micro_batch: {}
  optimizer: {{lr: 1.0e-3}}
  schedule: {{type: constant, warmup_ratio: 0, max_steps: 3}}
  batch: {{per_device: 6, grad_accum: 1}}
)",
                                          golden(a.model), rows, a.kind, a.share, a.more, rows, a.type, a.micro),
                              "shared.yaml");
}

struct Ran {
  std::vector<Json> steps;
  std::string adapter, unshared;
  int64_t tokens = 0;
};

Ran run(const Asked& a) {
  const std::string folder = testing::TempDir() + "/shared_prompts";
  fs::remove_all(folder);
  const config::Recipe recipe = recipe_of(a, rollouts(folder + "/data"));
  set_num_threads(a.threads);
  const auto setup = make_setup(recipe, recipe.model.name, 0, nullptr);
  EXPECT_EQ(setup->share_prompts, setup->unshared.empty());
  kernels::Ops& ops = kernels::cpu_ops();
  const kernels::KernelPlan plan = default_plan(*setup, cpu_identity(a.threads), ops, setup->pass());
  TrainOptions o;
  o.out = folder + "/out";
  o.data = folder + "/data";
  o.ends = {1};
  make_folders(o.out);
  Ran r;
  r.tokens = train(*setup, plan, ops, o).tokens;
  r.unshared = setup->unshared;
  std::istringstream lines(read_file(o.out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) r.steps.push_back(Json::parse(line));
  const std::string adapter = o.out + "/checkpoint/adapter_model.safetensors";
  if (fs::exists(adapter)) r.adapter = read_file(adapter);
  return r;
}

void expect_near(const Ran& got, const Ran& want, double tolerance) {
  ASSERT_EQ(got.steps.size(), 3u);
  ASSERT_EQ(want.steps.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    for (const auto& [key, value] : want.steps[i].items()) {
      const bool compared = key == "loss" || key == "grad_norm" || key == "kl" || key == "entropy" ||
                            key.starts_with("clip_ratio") || key.starts_with("loss/") || key == "val/grad_norm" ||
                            key.starts_with("policy/");
      if (!compared) continue;
      const double x = got.steps[i][key], y = value;
      EXPECT_NEAR(x, y, tolerance * std::max(std::abs(y), 0.1)) << key << " of step " << i + 1;
    }
}

TEST(SharedPrompts, GiveTheStepsOfPromptsApart) {
  for (const Asked& a :
       {Asked{}, Asked{.model = "gemma3"}, Asked{.model = "llama_mqa", .more = "kl_coef: 0, num_iterations: 3"},
        Asked{.model = "qwen3_moe"}, Asked{.kind = "gspo"}, Asked{.kind = "rloo"},
        Asked{.kind = "ppo", .more = "inner_epochs: 3, lora: {r: 4}"}}) {
    SCOPED_TRACE(a.model + " " + a.kind);
    Asked other = a;
    other.share = false;
    const Ran shared = run(a), apart = run(other);
    EXPECT_EQ(shared.unshared, "");
    EXPECT_EQ(apart.unshared, "share_prompts: false");
    expect_near(shared, apart, 2e-5);
    EXPECT_LT(shared.tokens, apart.tokens);
  }
}

// A pass of one row, of parts of groups, of several groups: the same steps to rounding, and an answer's own numbers to
// the bit; threads change nothing.
TEST(SharedPrompts, DoNotDependOnTheCut) {
  Asked a;
  const Ran whole = run(a);
  for (const int micro : {1, 2, 3, 4}) {
    SCOPED_TRACE(micro);
    a.micro = micro;
    const Ran cut = run(a);
    expect_near(cut, whole, 2e-6);
    EXPECT_EQ(cut.steps[0]["kl"], whole.steps[0]["kl"]);
    EXPECT_EQ(cut.steps[0]["entropy"], whole.steps[0]["entropy"]);
  }
  for (const char* type : {"float32", "bfloat16"}) {
    const Ran one = run({.type = type, .threads = 1}), two = run({.type = type, .threads = 2});
    EXPECT_FALSE(one.adapter.empty());
    EXPECT_EQ(one.adapter, two.adapter);
  }
}

TEST(SharedPrompts, SayWhyNot) {
  const auto why = [](const Asked& a) {
    const config::Recipe recipe = recipe_of(a, "rollouts.jsonl");
    const auto setup = make_setup(recipe, recipe.model.name, 0, nullptr);
    EXPECT_EQ(setup->share_prompts, setup->unshared.empty());
    EXPECT_EQ(setup->pass_tokens(6), setup->share_prompts ? 2 * (64 - 13) + 6 * 13 : 6 * 64);
    return setup->unshared;
  };
  EXPECT_EQ(why({}), "");
  EXPECT_NE(why({.model = "qwen3_5"}).find("gated delta layers"), std::string::npos);
  EXPECT_NE(why({.model = "nanochat_v2", .more = "kl_coef: 0"}).find("the token before"), std::string::npos);
  EXPECT_NE(why({.more = "lora: {r: 4, dropout: 0.1}"}).find("dropout"), std::string::npos);
}

}  // namespace
}  // namespace mxt::train
