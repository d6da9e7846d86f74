// A few layers of a model as a running step program: what a pass costs with everything in it, without the whole model's
// memory.
#pragma once

#include <memory>
#include <vector>

#include "autotune/device_timer.h"
#include "config/recipe.h"
#include "formats/model_config.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "optim/optimizer.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::autotune {

// The model with `layers` layers and no more than kSliceVocab words; everything else as it is.
inline constexpr int64_t kSliceVocab = 4096;
formats::ModelConfig slice_of(const formats::ModelConfig& model, int64_t layers);

class Slice {
 public:
  // Counts; memory is taken by params() and the first pass. `params` may be another slice's of the same layers; null:
  // its own; `packed_weights`: of its own ones. A pass holds `rows` rows of `seq_len` tokens, each a document (two
  // where `packed`), every token with a target.
  Slice(const formats::ModelConfig& slice, const models::BuildOptions& options, const config::Train& train,
        int64_t seq_len, int64_t rows, bool packed, const kernels::KernelPlan& plan, kernels::Ops& ops,
        std::shared_ptr<runtime::ParamStore> params = nullptr, runtime::Offload offload = runtime::Offload::kNone,
        bool packed_weights = false);
  double pass_us(DeviceTimer& clock);
  double update_us(DeviceTimer& clock);  // clipping and the optimizer over what trains
  int64_t trained() const;               // parameters that train
  double flops() const { return flops_; }
  int64_t rows() const { return rows_; }
  const std::shared_ptr<runtime::ParamStore>& params();

 private:
  void allocate();
  void fill_weights();
  graph::Graph graph_;
  kernels::Ops& ops_;
  runtime::Program program_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<runtime::ParamStore> params_;
  std::vector<int32_t> ids_, positions_, cu_;
  runtime::Offload offload_;
  int64_t rows_, seq_len_;
  double flops_ = 0;
  bool allocated_ = false, bound_ = false, packed_weights_ = false;
};

}  // namespace mxt::autotune
