// Schedules, and which rule a tensor goes by under Muon.
#include <gtest/gtest.h>

#include <cmath>

#include "optim/muon_groups.h"
#include "optim/schedule.h"

namespace mxt::optim {
namespace {

TEST(Schedule, WarmupStepsWinOverTheRatio) {
  config::Schedule s;
  s.type = config::ScheduleType::kConstant;
  s.warmup_ratio = 0.5;
  s.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 3, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 50, 100), 1);
  s.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 0, 100), 1);
}

// nanochat: 1 while s ≤ N − W, W = round(0.65·N), then p + (1 − p)·0.05 with p = (N − s)/W.
TEST(Schedule, WsdFallsOverItsPart) {
  config::Schedule s;
  s.type = config::ScheduleType::kWsd;
  s.warmup_steps = 40;
  s.min_lr_ratio = 0.05;
  s.decay_ratio = 0.65;
  for (const int64_t n : {200, 333, 29000}) {
    const auto w = static_cast<int64_t>(std::nearbyint(0.65 * static_cast<double>(n)));
    for (int64_t step = 0; step < n; ++step) {
      const double p = static_cast<double>(n - step) / static_cast<double>(w);
      const double want = step < 40 ? static_cast<double>(step + 1) / 40 : step <= n - w ? 1 : p + (1 - p) * 0.05;
      ASSERT_NEAR(learning_rate(s, 1, step, n), want, 1e-12) << step << " of " << n;
    }
  }
  s.decay_ratio.reset();  // a fifth
  EXPECT_DOUBLE_EQ(learning_rate(s, 1, 79, 100), 1);
  EXPECT_NEAR(learning_rate(s, 1, 90, 100), 1 - 0.95 / 2, 1e-12);
}

TEST(Muon, PaceOfPretraining) {
  config::Muon m;
  config::Schedule s;
  s.type = config::ScheduleType::kWsd;
  s.decay_ratio = 0.65;
  m.schedule = config::MuonSchedule::kPretrain;
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 0, 2000).momentum, 0.85);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 200, 2000).momentum, 0.91);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 500, 2000).momentum, 0.97);
  EXPECT_NEAR(muon_pace(m, s, 1350, 2000).momentum, 0.935, 1e-12);  // half of the way from 700 to 2,000
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 0, 2000).decay, 1);
  EXPECT_NEAR(muon_pace(m, s, 1000, 2000).decay, 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 300, 300 + 1).momentum, 0.85 + 0.12 * 300 / 400);  // the rise is checked first
  m.schedule = config::MuonSchedule::kSft;
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 150, 2000).momentum, 0.9);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 900, 2000).momentum, 0.95);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 0, 2000).decay, 0);
  m.schedule = config::MuonSchedule::kNone;
  m.momentum = 0.7;
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 5, 2000).momentum, 0.7);
  EXPECT_DOUBLE_EQ(muon_pace(m, s, 5, 2000).decay, 1);
}

MuonGroup group(const std::string& name, graph::ParamKind kind = graph::ParamKind::kMatrix,
                config::MuonVariant variant = config::MuonVariant::kNanochat) {
  config::Optimizer o;
  o.lr = 1e-3;
  o.muon.emplace();
  o.muon->variant = variant;
  o.muon->embedding_lr = 0.3;
  o.muon->head_lr = 0.008;
  o.muon->scalar_lr = 0.5;
  graph::Param p;
  p.kind = kind;
  p.segments = {{name, 0, 1}};
  return muon_group(o, p);
}

TEST(Muon, GroupsOfNanochat) {
  using graph::ParamKind;
  EXPECT_TRUE(group("model.layers.3.self_attn.q_proj.weight").muon);
  EXPECT_TRUE(group("model.layers.3.self_attn.ve_gate.weight").muon);
  EXPECT_TRUE(group("transformer.h.0.mlp.c_fc.weight").muon);
  const auto expect = [](const MuonGroup& g, double lr, double b1, double b2, double decay) {
    EXPECT_FALSE(g.muon);
    EXPECT_DOUBLE_EQ(g.lr, lr);
    EXPECT_DOUBLE_EQ(g.beta1, b1);
    EXPECT_DOUBLE_EQ(g.beta2, b2);
    EXPECT_DOUBLE_EQ(g.eps, 1e-10);
    EXPECT_DOUBLE_EQ(g.weight_decay, decay);
  };
  expect(group("lm_head.weight"), 0.008, 0.8, 0.96, 0.01);
  expect(group("model.embed_tokens.weight", ParamKind::kEmbedding), 0.3, 0.8, 0.995, 0.001);
  expect(group("model.value_embeds.1.weight", ParamKind::kEmbedding), 0.15, 0.8, 0.995, 0.01);
  expect(group("model.resid_lambdas", ParamKind::kBias), 0.005, 0.8, 0.95, 0.05);
  expect(group("model.x0_lambdas", ParamKind::kBias), 0.5, 0.96, 0.95, 0);
  for (const char* name : {"model.smear_gate.weight", "model.smear_lambda", "model.backout_lambda"})
    expect(group(name), 0.2, 0.8, 0.95, 0);
  expect(group("model.norm.weight", ParamKind::kNormWeight), 0.5, 0.8, 0.95, 0);
}

TEST(Muon, TorchsVariantTakesTheRecipesBetas) {
  const MuonGroup g = group("model.embed_tokens.weight", graph::ParamKind::kEmbedding, config::MuonVariant::kTorch);
  EXPECT_EQ(g, (MuonGroup{false, 0.3, 0.9, 0.95, 1e-8, 0.1}));
  EXPECT_DOUBLE_EQ(group("model.norm.weight", graph::ParamKind::kNormWeight, config::MuonVariant::kTorch).weight_decay,
                   0);
}

}  // namespace
}  // namespace mxt::optim
