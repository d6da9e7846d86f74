// The probe: measures, inside a budget, what a recipe leaves open on this device, and writes it into a KernelPlan. It
// knows the device through kernels::Ops alone.
//
// In this order, each with a part of the budget that was set before (docs/planning.md):
//   1. threads          passes of a slice of the model, with each number of threads and with threads bound to cores
//   (host backends)
//   2. rows of a pass   the same, with each micro-batch that fits the memory
//   3. kernel calls     every product of the step, forward and gradients, the adapters' thin ones too, and attention
//   with its
//                       gradient, with every algorithm of the backend that does something of its own
//   4. the check        the slice with the default choices and with the plan's, in turn: a plan that is not faster as a
//   whole is not written
//   5. adapters of a rank that no one-pass kernel has, beside the nearest rank that one has: what that costs
// Two probes are to choose alike. So what is asked follows from counting operations, not from how the clock ran;
// candidates are timed one right after the other, round by round, and rounds go over all calls in turn; choose.h
// compares them within rounds. What was not asked is in the plan with median 0, and the default stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop.h"
#include "config/recipe.h"
#include "formats/model_config.h"
#include "graph/passes.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/params.h"

namespace mxt::autotune {

// One way to cut a step into passes.
struct Pass {
  int64_t micro_batch = 1;  // rows
  graph::Recompute recompute = graph::Recompute::kNone;
  bool packed_weights = false;  // runtime::ProgramSettings::packed_weights
};

struct Subject {
  formats::ModelConfig model;
  models::BuildOptions options;  // of the training graph; `lora` must outlive the probe
  int64_t seq_len = 0;
  int64_t rows = 0;                                    // of an optimizer step
  std::function<int64_t(int64_t rows)> pass_tokens;    // of a pass, at most; null: seq_len a row
  config::Train train;                                 // whose optimizer makes the update
  bool packed = false;                                 // rows hold several documents
  runtime::Offload offload = runtime::Offload::kNone;  // of the update
  std::vector<Pass> passes;             // what fits the memory and the recipe leaves open; the first is the default
  std::vector<int> threads;             // empty: not a question here; the first is the default
  bool pinning = false;                 // whether threads may be bound to cores
  std::vector<int64_t> one_pass_ranks;  // of adapters, as the backend has them (kernels::BackendInfo)
  kernels::KernelPlan plan;             // identity, shapes, environment and default choices
};

struct Settings {
  double budget_s = 60;
  bool enumerate = false;  // more rounds, and no early end
  StopFlag stop = nullptr;
};

// One call of the report.
struct Line {
  std::string key, usual, chosen;
  double count = 0;                    // times in a pass
  double usual_us = 0, chosen_us = 0;  // of one call; 0: not measured
};

struct Report {
  kernels::KernelPlan plan;
  std::vector<Line> lines;
  int64_t unmeasured = 0;  // candidates that the budget did not reach
  // The passes of one step of the whole model as slices predict it: layers · one layer + the rest. 0: not measured. In
  // the plan's candidates they stand as "step", update included.
  double usual_step_us = 0, chosen_step_us = 0;
  double update_us = 0;       // clipping and the optimizer, of all that trains
  bool kept_default = false;  // the check found that the choices gain too little together, or could not be made
  double declined_gain = 0;   // what they gained, where the default ones were kept
  double seconds = 0;
};

// Operations per second of one large product of this type with the default algorithm, timed now (half a second at most
// on a slow device).
double product_rate(kernels::Ops& ops, DType type);

Report probe(const Subject& subject, kernels::Ops& ops, const Settings& settings);

}  // namespace mxt::autotune
