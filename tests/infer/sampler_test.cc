#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <limits>

#include <cmath>
#include <map>

namespace mxt::infer {
namespace {

const std::vector<float> kLogits{1.0f, 3.0f, 2.0f, -1.0f, 0.5f};

std::map<int32_t, double> frequencies(const Sampling& s, int n = 20000) {
  std::map<int32_t, double> f;
  for (int i = 0; i < n; ++i) f[sample(kLogits, s, static_cast<uint64_t>(i))] += 1.0 / n;
  return f;
}

TEST(Sampler, TemperatureZeroTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample(std::vector<float>{0, 5, 5, 1}, {}, 0), 1);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  Sampling s;
  s.temperature = 0.8;
  s.seed = 7;
  double total = 0;
  std::vector<double> p;
  for (float x : kLogits) total += p.emplace_back(std::exp(x / 0.8));
  const auto f = frequencies(s);
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(f.contains(static_cast<int32_t>(i)) ? f.at(static_cast<int32_t>(i)) : 0, p[i] / total, 0.015) << i;
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  Sampling k{.temperature = 1, .top_k = 2};
  for (const auto& [id, f] : frequencies(k)) EXPECT_TRUE(id == 1 || id == 2);
  Sampling p{.temperature = 1, .top_p = 0.6};  // the best one alone has 0.61 of the mass
  for (const auto& [id, f] : frequencies(p)) EXPECT_EQ(id, 1);
  Sampling m{.temperature = 1, .min_p = 0.3};  // e^-1 = 0.37 stays, e^-2 goes
  for (const auto& [id, f] : frequencies(m)) EXPECT_TRUE(id == 1 || id == 2);
}

TEST(Sampler, ManyCandidatesAreCutAsFewAre) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 5000) * 1e-4f;
  Sampling s{.temperature = 1, .top_p = 0.5};
  double total = 0, sum = 0;
  const auto order = most_likely(logits, 5000);
  for (float x : logits) total += std::exp(x);
  size_t keep = 0;
  while (sum < 0.5 * total) sum += std::exp(logits[static_cast<size_t>(order[keep++])]);
  float least = logits[static_cast<size_t>(order[keep - 1])];
  for (uint64_t n = 0; n < 40; ++n) EXPECT_GE(logits[static_cast<size_t>(sample(logits, s, n))], least);
}

TEST(Sampler, PenaltiesAndBiases) {
  std::vector<float> x{2, -2, 1, 0};
  Sampling s;
  s.repetition_penalty = 2;
  s.presence_penalty = 0.5;
  s.frequency_penalty = 0.25;
  s.logit_bias = {{3, 4.0f}};
  adjust(x, s, Seen{{0, 0}, {1, 0}, {2, 2}});
  EXPECT_EQ(x, (std::vector<float>{1, -4, -0.5f, 4}));
  const uint64_t mask[] = {0b0100};
  allow_only(x, mask);
  EXPECT_EQ(sample(x, {}, 0), 2);
}

TEST(Sampler, WhatIsImpossibleIsNeverDrawn) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<float> x(200, kNever);
  EXPECT_TRUE(nothing_left(x));
  x[150] = -3e38f;
  EXPECT_FALSE(nothing_left(x));
  for (const Sampling& s : std::vector<Sampling>{{.temperature = 0},
                                                 {.temperature = 1},
                                                 {.temperature = 2, .top_k = 50},
                                                 {.temperature = 1e-300, .top_p = 0.5},
                                                 {.temperature = 1, .top_p = 1e-9, .min_p = 0.3},
                                                 {.temperature = 2, .top_k = 200, .min_p = 1e-30}})
    for (uint64_t n = 0; n < 50; ++n) EXPECT_EQ(sample(x, s, n), 150);
}

TEST(Sampler, FiniteLogitsStayFinite) {
  std::vector<float> x{3e38f, -3e38f, 0};
  EXPECT_TRUE(all_finite(x));
  adjust(x, {.repetition_penalty = 0.01}, {{0, 1}, {1, 1}});
  EXPECT_TRUE(all_finite(x));
  x[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(all_finite(x));
  x[1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(all_finite(x));
}

}  // namespace
}  // namespace mxt::infer
