// The rule of choice, on numbers and on simulated clocks.
#include "autotune/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "autotune/comparison.h"

namespace mxt::autotune {
namespace {

using kernels::Candidate;

std::vector<size_t> all_of(size_t n) {
  std::vector<size_t> r(n);
  for (size_t i = 0; i < n; ++i) r[i] = i;
  return r;
}

// Rounds without noise.
Samples constant(std::initializer_list<double> us) {
  Samples s;
  for (double v : us) s.emplace_back(v > 0 ? 9 : 0, v);
  return s;
}

TEST(Choose, MedianAndInterquartileRangeAsNumpyHasThem) {
  const Candidate c = summarise("a", {4, 1, 3, 2, 10}, all_of(5));
  EXPECT_DOUBLE_EQ(c.median_us, 3);
  EXPECT_DOUBLE_EQ(c.spread_us, 2);
  const Candidate even = summarise("a", {1, 2, 3, 4}, all_of(4));
  EXPECT_DOUBLE_EQ(even.median_us, 2.5);
  EXPECT_DOUBLE_EQ(even.spread_us, 1.5);
  EXPECT_EQ(summarise("a", {}, {}).median_us, 0);
}

TEST(Choose, QuietRoundsAreThoseThatNothingSlowedAsAWhole) {
  EXPECT_EQ(quiet_rounds({{10, 15, 10, 30, 11}, {20, 30, 20, 20, 20}}), (std::vector<size_t>{0, 2, 4}));
}

TEST(Choose, TheFastestWinsBeyondTheMargin) {
  EXPECT_EQ(choose({"auto", "b", "c"}, constant({100, 70, 85})), 1u);
  EXPECT_EQ(choose({"z", "a"}, constant({123, 100})), 0u);
  EXPECT_EQ(choose({"z", "a"}, constant({127, 100})), 1u);
}

TEST(Choose, ASteadyDevicesClockFindsOnePercent) {
  EXPECT_EQ(choose({"z", "a"}, constant({101, 100}), kDeviceMargin), 1u);
  EXPECT_EQ(choose({"z", "a"}, constant({100.3, 100}), kDeviceMargin), 0u);
  EXPECT_EQ(choose({"z", "a"}, {{101, 102, 100, 103, 100}, {100, 103, 98, 101, 101}}, kDeviceMargin),
            0u);  // its own rounds do not agree
}

TEST(Choose, AmongOthersWithinTheMarginTheFirstNameWins) {
  EXPECT_EQ(choose({"z", "c", "b", "a"}, constant({200, 100, 103, 130})), 2u);
}

TEST(Choose, WhatWasNotMeasuredIsNotChosen) {
  EXPECT_EQ(choose({"z", "a"}, constant({100, 0})), 0u);
  EXPECT_EQ(choose({"z", "a"}, constant({0, 10})), 0u);
  EXPECT_EQ(choose({"z"}, constant({0})), 0u);
  EXPECT_EQ(choose({"z", "a"}, {{100, 100, 100, 100}, {10, 10, 10, 10}}), 0u);  // four rounds are none
}

TEST(Choose, AGainThatItsOwnRoundsDoNotConfirmIsNone) {
  EXPECT_EQ(choose({"z", "a"}, {{100, 100, 100, 100, 100}, {60, 90, 95, 140, 85}}), 0u);
}

TEST(Choose, OnlyTheEdgeIsUndecided) {
  EXPECT_TRUE(undecided(constant({129, 100})));
  EXPECT_TRUE(undecided(constant({121, 100})));
  EXPECT_FALSE(undecided(constant({150, 100})));
  EXPECT_FALSE(undecided(constant({103, 100})));
}

// A machine that others share. Time runs as the candidates take their turns; a slow phase or a drift covers whatever is
// timed in it.
class NoisyClock {
 public:
  explicit NoisyClock(uint32_t seed) : rng_(seed) {}
  double sample(double us) {
    now_ += us;
    while (now_ > until_) {  // phases of 5 to 50 ms; one in four is slow
      slow_ = uniform() < 0.25 ? 1 + 0.4 * uniform() : 1;
      until_ += 5e3 + 45e3 * uniform();
    }
    const double drift = 1 + 0.15 * std::sin(now_ / 70e3), white = 1 + 0.015 * normal_(rng_),
                 spike = uniform() < 0.1 ? 1 + 2 * uniform() : 1;
    return us * drift * slow_ * std::max(0.9, white) * spike;
  }

 private:
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(rng_); }
  std::mt19937 rng_;
  std::normal_distribution<double> normal_;
  double now_ = 0, until_ = 0, slow_ = 1;
};

size_t probed(const std::vector<double>& us, uint32_t seed) {
  NoisyClock clock(seed);
  const std::vector<std::string> names{"auto", "onednn", "panels", "rows"};
  Samples s(us.size());
  for (int round = 0; round < 45; ++round) {
    if (round >= 15 && !undecided(s)) break;
    for (size_t k = 0; k < us.size(); ++k) {
      const size_t i = round % 2 ? us.size() - 1 - k : k;
      s[i].resize(s[i].size() + 1);
      s[i].back() = clock.sample(us[i]);
    }
    if (round % 3 == 2) clock.sample(20e3);  // other calls' turns
  }
  return choose({names.begin(), names.begin() + static_cast<long>(us.size())}, s);
}

TEST(Choose, ANoisyClockChangesNoChoice) {
  // Times of the candidates, the default's first → what every probe must answer.
  const std::vector<std::pair<std::vector<double>, size_t>> calls = {
      {{1000, 1000}, 0},              // equal
      {{1000, 1010, 990, 1005}, 0},   // as good as equal
      {{1000, 900}, 0},               // 11 % is what processes differ by
      {{1000, 1200, 2500, 1100}, 0},  // the default is the best
      {{1000, 730}, 1},               // 37 %
      {{1000, 1100, 720, 3000}, 2},   // 39 %
      {{1000, 500, 490, 510}, 1},     // three of a kind: the first name
      {{1000, 1000, 1000, 600}, 3},
  };
  for (const auto& [us, want] : calls) {
    int wrong = 0;
    for (uint32_t seed = 1; seed <= 500; ++seed) wrong += probed(us, seed) != want;
    EXPECT_EQ(wrong, 0) << us[0] << " against " << us[1] << ": of 500 seeds";
  }
}

TEST(Choose, AGainOfThirtyPercentIsFoundByAlmostEveryProbe) {
  int found = 0;
  for (uint32_t seed = 1; seed <= 500; ++seed) found += probed({1000, 1000 / 1.30}, seed) == 1;
  EXPECT_GE(found, 495);
}

TEST(Comparison, ACandidateThatCannotWinIsTimedTwiceAndStillReported) {
  std::vector<int> asked(3, 0);
  const std::vector<double> us{100, 60, 400};
  Comparison q({"auto", "fast", "slow"}, kHostMargin, [&](size_t i) {
    ++asked[i];
    return Parts{us[i]};
  });
  ASSERT_TRUE(q.warm());
  q.round();
  q.give_up_hopeless();
  while (q.rounds() < 9) q.round();
  EXPECT_EQ(asked, (std::vector<int>{10, 10, 2}));
  EXPECT_EQ(q.choice(), 1u);
  EXPECT_EQ(q.summary()[2].median_us, 400);
  EXPECT_EQ(q.summary(0)[2].median_us, 400);
}

}  // namespace
}  // namespace mxt::autotune
