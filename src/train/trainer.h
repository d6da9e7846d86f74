// The training run: from a set-up and a prepared dataset to a checkpoint.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "train/metrics.h"
#include "train/rewards/rewards.h"
#include "train/setup.h"
#include "train/tools/tools.h"

namespace mxt::train {

struct TrainOptions {
  std::string out;   // the run's folder
  std::string data;  // the prepared dataset
  // What a resume must match: the recipe but for its hardware, the data, what training starts from; on the same device
  // the plan.
  std::string recipe_digest, plan_digest, data_digest, base_digest;
  bool resume = false;
  int64_t resume_from = -1;                 // a step; −1 = the newest
  const std::atomic<bool>* stop = nullptr;  // set by a signal: finish the step, save, return interrupted
  // Of methods that sample: text of token ids, and the tokens that end an answer.
  std::function<std::string(std::span<const int32_t>)> decode;
  std::vector<int32_t> ends;
  RewardServices rewards;
  ToolServices tools;
  std::function<void()> begins = [] {};  // called when nothing is left that could refuse, before anything is written
  std::function<void(const StepMetrics&)> on_step;  // after each step, by the thread that trains; may be empty
};

struct TrainResult {
  int64_t steps = 0, done = 0, tokens = 0;
  double first_loss = 0, last_loss = 0, tok_s = 0, tflops = 0, seconds = 0;
  double best_eval = -1;
  uint64_t decisions = 0;    // kernel choices made inside the loop: always 0, everything was decided before
  uint64_t peak_memory = 0;  // VmHWM of the process when training ended
  bool interrupted = false;
};

// Trains to the end (or until stopped) and writes OUT/checkpoint, OUT/checkpoints/step-N, metrics and the loss curve.
// The adapter or model in OUT/checkpoint is a function of recipe, plan, base and data alone.
TrainResult train(Setup& setup, const kernels::KernelPlan& plan, kernels::Ops& ops, const TrainOptions& options);

// Mean loss over the held-out part.
double evaluate(runtime::Program& program, const std::string& data, int64_t micro_batch, int64_t max_tokens,
                const std::optional<image::Processor>& processor = std::nullopt);

}  // namespace mxt::train
