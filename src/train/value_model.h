// What PPO holds an answer against: a model of its own whose score after a token is an estimate of the reward that is
// still to come (TRL's value model). It begins as the policy does, with a head of zeros, so its first estimates are 0;
// it trains by the recipe's optimizer, clipped by itself, and is kept with the run's steps, not in what the run makes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "data/dataset.h"
#include "optim/optimizer.h"
#include "train/batches.h"
#include "train/methods/method.h"
#include "train/setup.h"

namespace mxt::train {

class ValueModel {
 public:
  using RowOf = std::function<data::Row(int64_t)>;
  ValueModel(const Setup& setup, const kernels::KernelPlan& plan, kernels::Ops& ops);
  // What it takes beside the policy.
  static runtime::ParamBytes param_bytes(const Setup& setup);
  static std::array<runtime::ProgramBytes, 2> program_bytes(const Setup& setup, const kernels::KernelPlan& plan,
                                                            kernels::Ops& ops);

  // Of each of `rows` (a prompt with its answer): the state before each of the answer's targets and, last, behind it.
  std::vector<std::vector<float>> estimate(int64_t rows, const RowOf& row);
  // The gradient of the method's loss of these rows; returns the loss. update() then takes the step.
  double learn(Method& method, int64_t rows, const RowOf& row, uint64_t step);
  void update(const optim::Step& step) { optimizer_->update(step); }
  double grad_norm() const { return optimizer_->grad_norm(); }

  // In a folder of its own below `checkpoints`, before the policy's of the same step.
  void save(const std::string& checkpoints, const checkpoint::TrainState& state) const;
  void load(const std::string& checkpoints, const checkpoint::TrainState& state);
  // Removes all but `step` and those that the policy has too: a kill between the two folders leaves the policy at the
  // one before.
  void keep_beside(const std::string& checkpoints, int64_t step) const;

 private:
  struct Place {
    int64_t row = 0;
    std::vector<size_t> states;  // rows of the pass
  };
  void pack(int64_t first, int64_t last, const RowOf& row);

  const Setup& s_;
  graph::Graph graph_, score_graph_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<runtime::ParamStore> params_;
  std::unique_ptr<runtime::Program> program_, scorer_;
  PackedBatch batch_;
  std::vector<Place> places_;
};

}  // namespace mxt::train
