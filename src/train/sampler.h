// Rollouts by the engine that trains: the scheduler over the run's live weights and adapter, of which there is one
// copy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/stop.h"
#include "infer/reward_model.h"
#include "infer/scheduler.h"
#include "train/batches.h"
#include "train/rewards/rewards.h"
#include "train/rollouts.h"
#include "train/setup.h"
#include "train/tools/tools.h"

namespace mxt::train {

struct Prompt {
  std::vector<int32_t> ids;
  std::string reference;  // the answer that samples are measured against
};

// Whether a recipe's steps draw answers of their own.
bool samples(const config::Recipe& recipe);
// What that takes beside the pass, while it runs: keys and values of the answers drawn at once, and the program.
int64_t sampler_cache_bytes(const Setup& s);
runtime::ProgramBytes sampler_program_bytes(const Setup& s, const kernels::KernelPlan& plan, const kernels::Ops& ops);

// And of the reward models that judge them. One that a recipe has yet to make is taken for an adapter like the policy's
// over the policy's base, as is an adapter's base.
std::vector<infer::RewardModel::Bytes> judge_bytes(const Setup& s, kernels::Ops& ops);

class Sampler {
 public:
  using Decode = std::function<std::string(std::span<const int32_t>)>;
  // `ends`: tokens that end an answer; an answer holds the one that ended it.
  Sampler(const Setup& setup, runtime::ParamStore& live, kernels::Ops& ops, Decode decode, std::vector<int32_t> ends,
          const RewardServices& services, const ToolServices& tools);
  // num_generations answers to each prompt, turn after turn where they call tools, and their rewards. What is drawn for
  // sample k of prompt p depends on (seed, draw, p · num_generations + k) and the weights alone, not on what else is
  // sampled. kInterrupted where `stop` is set; kBadInput where a reward fails and the recipe has no value for that.
  std::vector<Rollout> sample(int64_t draw, const std::vector<Prompt>& prompts, StopFlag stop);

 private:
  const Setup& s_;
  Decode decode_;
  std::vector<int32_t> ends_;
  infer::Model model_;
  infer::Scheduler scheduler_;
  Rewards rewards_;
  Tools tools_;
};

// The prompts of a prepared dataset, and the answers that are sampled to those of a step when it begins.
class LiveRows : public StepData {
 public:
  using Sample = std::function<std::vector<Rollout>(int64_t draw, const std::vector<Prompt>&)>;
  LiveRows(const std::string& folder, uint64_t seed, bool shuffle, const config::Method& method, int64_t rows_per_step,
           Sampler::Decode decode, Sample sample);
  int64_t rows() const override { return prompts_.rows() * generations_; }
  int64_t rows_of_step(int64_t step) const override;
  data::Row row(int64_t step, int64_t i) override;
  int64_t row_index(int64_t, int64_t i) override { return i; }
  data::Row at(int64_t index) const override;
  std::span<Rollout> rollouts(int64_t step) override;
  // A step amid its iterations goes on with the answers that were sampled before.
  std::string save(int64_t next_step) const;
  void load(const std::string& saved, int64_t next_step);

 private:
  int64_t draws_per_epoch() const { return (prompts_.rows() + prompts_per_step_ - 1) / prompts_per_step_; }
  std::vector<Prompt> prompts_of(int64_t draw);
  void lay_out();

  data::Dataset prompts_;
  uint64_t seed_;
  bool shuffle_;
  int64_t prompts_per_step_, generations_, iterations_, drawn_ = -1;
  Sampler::Decode decode_;
  Sample sample_;
  std::vector<Rollout> now_;
  std::vector<std::vector<int32_t>> ids_, labels_, cu_;  // of now_'s completions
};

// OUT/rollouts.jsonl: what was sampled, a prompt a line, with the step that it was sampled for.
class RolloutLog {
 public:
  // What stands there for steps after `resume_step` is dropped.
  RolloutLog(std::string path, int64_t resume_step);
  void write(int64_t step, std::span<const Rollout> rollouts);

 private:
  std::string path_;
};

}  // namespace mxt::train
