// What turns gradients into updates. An optimizer says beforehand which arrays it keeps beside each parameter, so that
// the planner counts them, a ParamStore holds them and a checkpoint saves them; then it queues the calls of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/recipe.h"
#include "device/memory.h"
#include "graph/graph.h"
#include "kernels/api.h"
#include "optim/schedule.h"
#include "runtime/params.h"

namespace mxt::optim {

struct Step {
  int64_t step = 1;   // counts from 1
  int64_t steps = 1;  // of the run
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;

  // What it keeps beside the parameters of the graph that it was made for.
  const runtime::States& states() const { return states_; }
  // Bytes of work that it needs beside them, where the step runs.
  virtual int64_t workspace() const { return kOwnWork; }
  // The learning rate that metrics name.
  virtual double rate(const Step& step) const { return scheduled(settings_.lr, step); }

  // Takes the addresses of a store that holds states(), and the work. `params` and `ops` must outlive this.
  void bind(const runtime::ParamStore& params, kernels::Ops& ops);
  // Clips as torch.nn.utils.clip_grad_norm_ and updates. Queued: no host waits for it.
  void update(const Step& step);
  // The norm of the last update's gradient before it was clipped; waits for the device.
  double grad_norm() const;

 protected:
  static constexpr int64_t kOwnWork = 256;
  // What trains, in the graph's order.
  struct Trained {
    graph::Param param;
    runtime::ParamSlot slot;
    uint16_t* copy = nullptr;  // where the model computes in bf16
    bool decays = false;       // as transformers' Trainer: neither biases nor norms
    double rate = 1;           // times the learning rate
    bool matrix() const {
      return param.kind == graph::ParamKind::kMatrix || param.kind == graph::ParamKind::kEmbedding;
    }
  };
  // A tensor of the checkpoint within a parameter: what an optimizer that looks at a whole tensor looks at.
  struct Tensor {
    int64_t first = 0, rows = 1, cols = 0;  // elements from the parameter's first one; of a vector one row
    int64_t row = 0;                        // of a matrix: its first row
    int64_t size() const { return rows * cols; }
  };
  static std::vector<Tensor> tensors_of(const graph::Param& p);

  Optimizer(const config::Train& train, const graph::Graph& g);
  virtual void attach() = 0;  // bind()'s second half: trained_ and work_ are there
  virtual void apply(const Step& step, const float* grad_scale) = 0;
  float rate_of(const Trained& t, const Step& s) const { return static_cast<float>(rate(s) * t.rate); }
  double scheduled(double peak, const Step& s) const { return learning_rate(schedule_, peak, s.step - 1, s.steps); }
  double weight_decay(const Trained& t) const { return t.decays ? settings_.weight_decay : 0.0; }

  config::Optimizer settings_;
  config::Schedule schedule_;
  runtime::States states_;
  std::vector<Trained> trained_;
  kernels::Ops* ops_ = nullptr;
  device::Buffer work_;

 private:
  kernels::SquaredNorm gradient_;
  double* squared_ = nullptr;
  float* scale_ = nullptr;
};

// The optimizer of a recipe for what trains in `g`.
std::unique_ptr<Optimizer> make_optimizer(const config::Train& train, const graph::Graph& g);

}  // namespace mxt::optim
