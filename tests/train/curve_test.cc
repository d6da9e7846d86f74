// The picture of a run's loss.
#include <gtest/gtest.h>

#include <unistd.h>

#include "base/files.h"
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

// W&B, MLflow and trackio are given metrics.jsonl's numbers; TensorBoard's file is written beside it.
TEST(TensorBoard, HasTheCurvesOfTheOtherTrackers) {
  const std::string folder = testing::TempDir() + "mxt_curves_" + std::to_string(getpid());
  fs::remove_all(folder);
  make_folders(folder);
  {
    MetricsLog log(folder, 0);
    StepMetrics m;
    m.step = 1;
    m.mfu = 0.25;
    m.eval_loss = 2;
    m.method = {{"margin", 1.5}};
    log.write(m);
  }
  const std::string events = read_file(folder + "/tensorboard/" + list_files(folder + "/tensorboard").at(0));
  for (const char* tag :
       {"train/loss", "train/lr", "train/grad_norm", "train/tok_s", "train/mfu", "eval/loss", "train/margin"})
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  fs::remove_all(folder);
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
