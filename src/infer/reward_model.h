// A reward model for use: one number for a sequence, read at its last token (formats/classifier.h). What transformers
// computes with the same folder, or with PEFT's adapter over the base.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "formats/weight_source.h"
#include "graph/graph.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::infer {

// Errors (kBadInput): the weights hold no head; `named` is what the message calls them.
void require_score(const formats::WeightSource& source, const std::string& named);

class RewardModel {
 public:
  // `path`: HF folder of a classifier, or the base of `adapter`, a PEFT folder that has the head ("" for none).
  // `longest`: tokens of the longest sequence, at most the model's positions. Errors (kBadInput): neither of them holds
  // a head.
  RewardModel(const std::string& path, const std::string& adapter, DType type, int64_t longest, kernels::Ops& ops);
  ~RewardModel();
  // What one of this model with this adapter (null: none) takes of the memory where it runs.
  struct Bytes {
    int64_t weights = 0;
    runtime::ProgramBytes program;
  };
  static Bytes bytes(const formats::ModelConfig& config, const models::LoraPlan* lora, DType type, int64_t longest,
                     kernels::Ops& ops);
  RewardModel(const RewardModel&) = delete;
  const formats::ModelConfig& config() const { return source_->config(); }
  int64_t longest() const { return longest_; }
  const graph::Graph& graph() const { return graph_; }
  runtime::ParamStore& params() { return *params_; }
  // A sequence's score does not depend on the others. Sequences have 1 … longest() ids of the vocabulary. `stop`:
  // looked at between passes (kInterrupted).
  std::vector<float> score(const std::vector<std::vector<int32_t>>& sequences, StopFlag stop = nullptr);

 private:
  std::unique_ptr<formats::WeightSource> source_;
  int64_t longest_, max_tokens_;
  models::LoraPlan lora_;
  graph::Graph graph_;
  kernels::KernelPlan plan_;
  std::unique_ptr<runtime::ParamStore> params_;
  std::unique_ptr<runtime::Program> program_;
};

}  // namespace mxt::infer
