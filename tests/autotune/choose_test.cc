// The rule of choice.
#include "autotune/choose.h"

#include <gtest/gtest.h>

namespace mxt::autotune {
namespace {

using kernels::Candidate;

TEST(Choose, MedianAndInterquartileRangeAsNumpyHasThem) {
  const Candidate c = summarise("a", {4, 1, 3, 2, 10});
  EXPECT_DOUBLE_EQ(c.median_us, 3);
  EXPECT_DOUBLE_EQ(c.spread_us, 2);
  const Candidate even = summarise("a", {1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(even.median_us, 2.5);
  EXPECT_DOUBLE_EQ(even.spread_us, 1.5);
  EXPECT_EQ(summarise("a", {}).median_us, 0);
}

TEST(Choose, TheFastestWinsBeyondTheNoise) {
  EXPECT_EQ(choose({{"auto", 100, 1}, {"b", 80, 1}, {"c", 90, 1}}), 1u);
}

TEST(Choose, TheDefaultStaysWithinFivePercentOrWithinTheSpread) {
  EXPECT_EQ(choose({{"z", 104, 1}, {"a", 100, 1}}), 0u);
  EXPECT_EQ(choose({{"z", 106, 1}, {"a", 100, 1}}), 1u);
  EXPECT_EQ(choose({{"z", 106, 8}, {"a", 100, 1}}), 0u);
  EXPECT_EQ(choose({{"z", 106, 1}, {"a", 100, 8}}), 0u);
}

TEST(Choose, AmongOthersWithinNoiseTheFirstNameWins) {
  EXPECT_EQ(choose({{"z", 200, 1}, {"c", 100, 1}, {"b", 103, 1}, {"a", 120, 1}}), 2u);
}

TEST(Choose, WhatWasNotMeasuredIsNotChosen) {
  EXPECT_EQ(choose({{"z", 100, 1}, {"a", 0, 0}}), 0u);
  EXPECT_EQ(choose({{"z", 0, 0}, {"a", 10, 1}}), 0u);
  EXPECT_EQ(choose({{"z", 0, 0}}), 0u);
}

TEST(Choose, AGainThatNobodyWouldFeelIsLeft) {
  EXPECT_EQ(choose({{"z", 20, 0}, {"a", 10, 0}}, 1, 1e6), 0u);
  EXPECT_EQ(choose({{"z", 20, 0}, {"a", 10, 0}}, 1000, 1e6), 1u);
}

TEST(Choose, OnlyAnEdgeIsUndecided) {
  EXPECT_TRUE(undecided({{"z", 105, 0}, {"a", 100, 0}}));
  EXPECT_FALSE(undecided({{"z", 150, 0}, {"a", 100, 0}}));
  EXPECT_FALSE(undecided({{"z", 100.5, 0}, {"a", 100, 0}}));
  EXPECT_FALSE(undecided({{"z", 105, 0}, {"a", 100, 0}}, 1, 1e6));
}

}  // namespace
}  // namespace mxt::autotune
