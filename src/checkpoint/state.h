// The trainer's state, for a resume that is bitwise equal to never having stopped: master weights and the optimizer's
// states of what trains, the step, and the digests of what the run was started with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/params.h"

namespace mxt::checkpoint {

struct TrainState {
  int64_t step = 0;       // optimizer steps done
  int64_t tokens = 0;     // tokens seen, for metrics
  double best_eval = -1;  // lowest evaluation loss so far, −1 = none
  int64_t best_step = -1;
  // BLAKE3 of what the run is made of: the recipe but for its hardware, the plan's choices, the data, what training
  // starts from.
  std::string recipe, plan_choices, dataset, base;
  std::string method;  // what the training method keeps between steps, as text; mostly empty
  std::string device;  // "cpu", "cuda": another device has another plan
};

// Writes FOLDER (…/step-N) whole: state.json and state.safetensors. Atomic: the folder appears when it is complete.
void save_state(const std::string& folder, const graph::Graph& g, const runtime::ParamStore& params,
                const TrainState& state);

// What the saved step was made with that is not `expected`'s ("dataset", …; of the plan only on the same device), ""
// where all is the same. Errors (kBadInput): no trainer's state.
std::string other_than(const std::string& folder, const TrainState& expected);

// kBadInput where a digest differs from `expected` (naming which), or a tensor does not fit; kVerifyFailed where the
// file is not as it was saved. The plan's may differ with the device: the state is the same masters, states and step
// on every device, and training goes on from it, equal but for rounding.
TrainState load_state(const std::string& folder, const graph::Graph& g, runtime::ParamStore& params,
                      const TrainState& expected);

// Steps saved below `checkpoints`, ascending: complete folders only.
std::vector<int64_t> saved_steps(const std::string& checkpoints);
std::string step_folder(const std::string& checkpoints, int64_t step);
// At no moment of it is the step there by half.
void remove_step(const std::string& checkpoints, int64_t step);
// Removes all but the last n and the best, which is saved for itself where it is none of the steps of save_every; and
// what a process left that was killed while it saved or removed one.
void keep_steps(const std::string& checkpoints, int64_t n, int64_t best_step);
void remove_partial_steps(const std::string& checkpoints);

}  // namespace mxt::checkpoint
