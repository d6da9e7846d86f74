// The probe: measures, inside a budget, what a recipe leaves open on this device, and writes it into a KernelPlan. It knows the device
// through kernels::Ops alone.
//
// In this order, each with a share of the budget that was set before:
//   1. threads          whole passes of a slice of the model, with each number of threads (host backends)
//   2. rows of a pass   the same, with each micro-batch that fits the memory
//   3. kernel calls     every product of the step, forward and gradients, the adapters' thin ones too, and attention with its
//                       gradient, with every algorithm of the backend; those that take most of the step first
//   4. the check        the slice with the default choices and with the plan's, in turn: a plan that is slower is not written
// Candidates of one question take turns, round by round, so that a machine that drifts slows all of them alike; the median of the
// rounds counts (choose.h is the rule). Rounds end early where every choice is clear. Nothing is started that would, by the rate
// measured at the beginning, not end in time: such a candidate is in the plan with median 0, not measured, and the default stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "graph/passes.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"

namespace mxt::autotune {

// One way to cut a step into passes.
struct Pass {
  int64_t micro_batch = 1;  // rows
  graph::Recompute recompute = graph::Recompute::kNone;
};

struct Subject {
  formats::ModelConfig model;
  models::BuildOptions options;  // of the training graph; `lora` must outlive the probe
  int64_t seq_len = 0;
  int64_t rows = 0;              // of an optimizer step
  bool packed = false;           // rows hold several documents
  std::vector<Pass> passes;      // what fits the memory and the recipe leaves open; the first is the default
  std::vector<int> threads;      // empty: not a question here; the first is the default
  kernels::KernelPlan plan;      // identity, shapes, environment and default choices
};

struct Settings {
  double budget_s = 60;
  bool enumerate = false;  // more rounds, and no early end
};

// One call of the report.
struct Line {
  std::string key, usual, chosen;
  double count = 0;                  // times in a pass
  double usual_us = 0, chosen_us = 0;  // of one call; 0: not measured
};

struct Report {
  kernels::KernelPlan plan;
  std::vector<Line> lines;
  int64_t unmeasured = 0;            // candidates that the budget did not reach
  // The passes of one step of the whole model as slices predict it: layers · one layer + the rest. 0: not measured. In the plan's
  // candidates they stand as "step", update included.
  double usual_step_us = 0, chosen_step_us = 0;
  double update_us = 0;              // clipping and the optimizer, of all that trains
  bool kept_default = false;         // the check found the choices slower than the default ones
  double seconds = 0;
};

// Operations per second of one large product of this type with the default algorithm, timed now (some milliseconds).
double product_rate(kernels::Ops& ops, DType type);

Report probe(const Subject& subject, kernels::Ops& ops, const Settings& settings);

}  // namespace mxt::autotune
