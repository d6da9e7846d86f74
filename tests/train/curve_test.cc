// The picture of a run's loss.
#include <gtest/gtest.h>

#include "train/metrics.h"

namespace mxt::train {
namespace {

size_t marks(const std::vector<double>& losses) {
  std::vector<StepMetrics> log;
  for (const double loss : losses) {
    StepMetrics m;
    m.step = static_cast<int64_t>(log.size()) + 1;
    m.loss = loss;
    log.push_back(m);
  }
  const std::string svg = loss_curve_svg(log, "run");
  size_t n = 0;
  for (size_t at = 0; (at = svg.find("stroke=\"#ddd\"", at)) != std::string::npos; ++at) ++n;
  return n;
}

// Equal losses of any size, and those that a run away from its minimum has.
TEST(Curve, HasAFewMarksWhateverTheLosses) {
  for (const double loss : {0.0, 0.6931, 1e7, 2.5e59, -2.5e59, 1e300}) {
    EXPECT_GE(marks({loss}), 2u) << loss;
    EXPECT_LE(marks({loss, loss}), 12u) << loss;
  }
  EXPECT_LE(marks({1, 2.5e59, 2}), 12u);
  EXPECT_LE(marks({1e16, 1e16 + 2}), 12u);
}

}  // namespace
}  // namespace mxt::train
