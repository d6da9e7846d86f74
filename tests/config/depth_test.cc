#include "config/depth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/recipe.h"

namespace mxt::config {
namespace {

// nanochat's scripts/base_train.py with its defaults and a vocabulary of 32,768.
TEST(Depth, GivesNanochatsHorizonBatchAndDecay) {
  struct Case {
    int64_t depth, step_tokens, steps;
    double decay;
  };
  for (const Case& c : {Case{4, 1 << 18, 528, 1.89},
                        {6, 1 << 18, 1062, 0},
                        {8, 1 << 18, 1920, 0},
                        {12, 1 << 19, 2520, 0.28},
                        {16, 1 << 19, 5376, 0},
                        {20, 1 << 20, 4980, 0},
                        {24, 1 << 20, 8352, 0.0597},
                        {26, 1 << 20, 10510, 0},
                        {32, 1 << 21, 9600, 0}}) {
    const DepthPlan p = plan_depth(c.depth, 32768, 12);
    EXPECT_EQ(p.step_tokens, c.step_tokens) << c.depth;
    EXPECT_EQ(p.steps, c.steps) << c.depth;
    if (c.decay > 0) {
      EXPECT_NEAR(p.weight_decay, c.decay, c.decay * 0.003) << c.depth;
    }
  }
  EXPECT_EQ(plan_depth(12, 32768, 12).scaling_parameters, 110100912);
  EXPECT_EQ(plan_depth(5, 32768, 12).width, 384) << "whole heads of 128";
  EXPECT_NEAR(plan_depth(24, 32768, 12, 1 << 19).weight_decay, 0.0422, 1e-4) << "at the seed's batch";
}

constexpr const char* kBase = R"(meta: {project: p, run_name: r}
model: {name: m, tokenizer: tok}
data: {source: local, path: x.jsonl}
hardware: {name: h100}
)";

TEST(Depth, FillsWhatTheRecipeLeavesOpen) {
  const Recipe r = parse_recipe(std::string(kBase) + "pretrain: {depth: 24}\n", "r.yaml");
  const Json c = Json::parse(r.model.config.json);
  EXPECT_EQ(c["model_type"], "nanochat_v2");
  EXPECT_EQ(c["hidden_size"], 1536);
  EXPECT_EQ(c["num_attention_heads"], 12);
  EXPECT_EQ(c["max_position_embeddings"], 2048);
  EXPECT_EQ(r.model.init, Init::kRandom);
  EXPECT_EQ(r.train.method.kind, MethodKind::kPretrain);
  EXPECT_EQ(r.data.pack, Pack::kBosCrop);
  EXPECT_EQ(r.data.boundaries, Boundaries::kRow);
  EXPECT_EQ(r.train.batch.per_device * r.train.batch.grad_accum * 2048, 1 << 20);
  EXPECT_EQ(r.train.schedule.max_steps, 8352);
  EXPECT_EQ(r.train.schedule.warmup_steps, 40);
  EXPECT_EQ(r.train.schedule.decay_ratio, 0.65);
  const Muon& m = *r.train.optimizer.muon;
  const double k = std::sqrt(2.0), width = std::sqrt(0.5);
  EXPECT_DOUBLE_EQ(m.lr, 0.02 * k);
  EXPECT_NEAR(*m.embedding_lr, 0.3 * width * k, 1e-12);
  EXPECT_NEAR(*m.head_lr, 0.008 * width * k, 1e-12);
  EXPECT_NEAR(*m.scalar_lr, 0.5 * k, 1e-12);
  EXPECT_NEAR(m.weight_decay, 0.0597, 1e-4);
  EXPECT_EQ(m.schedule, MuonSchedule::kPretrain);
}

TEST(Depth, WhatTheRecipeGivesWinsAndItsBatchSetsTheRates) {
  const Recipe r = parse_recipe(std::string(kBase) + R"(pretrain: {depth: 24, window_pattern: L}
train:
  batch: {per_device: 32, grad_accum: 8}
  optimizer: {name: muon, muon: {head_lr: 0.001}}
  schedule: {max_steps: 29000}
)",
                                "r.yaml");
  EXPECT_EQ(r.train.schedule.max_steps, 29000);
  EXPECT_EQ(r.train.schedule.warmup_steps, 40);
  EXPECT_DOUBLE_EQ(r.train.optimizer.muon->lr, 0.02) << "2^19 tokens are the reference";
  EXPECT_EQ(r.train.optimizer.muon->head_lr, 0.001);
  EXPECT_EQ(Json::parse(r.model.config.json)["window_pattern"], "L");
}

TEST(Depth, TheSettledRecipeIsTheSameRecipe) {
  const Recipe r = parse_recipe(std::string(kBase) + "pretrain: {depth: 4}\n", "r.yaml");
  Json j = Json::parse(canonical(r));
  std::erase_if(j.get_ref<Json::object_t&>(), [](const auto& section) { return section.second.is_null(); });
  const Recipe again = parse_recipe(j.dump(), "again.yaml");
  EXPECT_EQ(canonical(again), canonical(r));
}

TEST(Depth, RefusesWhatContradictsIt) {
  Recipe out;
  const auto issues = [&](const std::string& more) { return check_recipe(kBase + more, "r.yaml", &out); };
  ASSERT_EQ(issues("pretrain: {depth: 0}\n").size(), 1u);
  EXPECT_EQ(issues("pretrain: {depth: 0}\n")[0].key, "pretrain.depth");
  EXPECT_EQ(issues("pretrain: {}\n").size(), 1u);
  const auto random = check_recipe(R"(meta: {project: p, run_name: r}
model: {name: m, init: random, tokenizer: train}
data: {source: local, path: x.jsonl}
pretrain: {depth: four}
)",
                                   "r.yaml", &out);
  ASSERT_EQ(random.size(), 1u) << "the config that it would have given is not asked for";
  EXPECT_EQ(random[0].key, "pretrain.depth");
  const auto one = [&](const std::string& more, const std::string& key) {
    const auto found = issues("pretrain: {depth: 4" + more);
    ASSERT_EQ(found.size(), 1u) << more;
    EXPECT_EQ(found[0].key, key) << found[0].what;
  };
  one(", window_pattern: SXL}\n", "pretrain.window_pattern");
  one("}\ntrain: {method: {kind: lora}}\n", "train.method");
  one("}\ntrain: {method: {kind: qlora}}\n", "train.method");
  EXPECT_EQ(issues("pretrain: {depth: 4, window_pattern: LS}\ntrain: {method: {kind: full}}\n").size(), 0u);
  const auto few = [&](int tokens) {
    return check_recipe(fmt::format("meta: {{project: p, run_name: r}}\nmodel: {{name: m, tokenizer: train}}\n"
                                    "data: {{source: local, path: x.jsonl}}\npretrain: {{depth: 4, vocab_size: {}}}\n",
                                    tokens),
                        "r.yaml", &out);
  };
  ASSERT_EQ(few(264).size(), 1u);
  EXPECT_EQ(few(264)[0].key, "pretrain.vocab_size");
  EXPECT_EQ(few(265).size(), 0u);
  const auto odd = check_recipe(R"(meta: {project: p, run_name: r}
model: {name: m}
data: {source: local, path: x.jsonl, seq_len: 3000}
pretrain: {depth: 4}
)",
                                "r.yaml", &out);
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_NE(odd[0].what.find("no whole number"), std::string::npos) << odd[0].what;
  const auto both = check_recipe(R"(meta: {project: p, run_name: r}
model: {name: m, init: random, config: {model_type: gpt2}}
data: {source: local, path: x.jsonl}
pretrain: {depth: 4}
)",
                                 "r.yaml", &out);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].key, "model.config");
}

}  // namespace
}  // namespace mxt::config
