// A model in memory for use: base weights, optionally with a LoRA adapter beside them.
#pragma once

#include <memory>
#include <string>

#include "formats/weight_source.h"
#include "graph/graph.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::infer {

class Model {
 public:
  // `path`: HF folder or .gguf; `adapter`: PEFT folder or "". `positions`: longest sequence that will be used, at most the model's
  // own maximum (0 = that maximum, at most 8,192).
  Model(const std::string& path, const std::string& adapter, DType type, int64_t positions, kernels::Ops& ops);
  Model(const Model&) = delete;

  const formats::ModelConfig& config() const { return source_->config(); }
  int64_t vocab() const { return config().vocab_size; }
  int64_t positions() const { return options_.positions; }
  DType type() const { return options_.type; }
  kernels::Ops& ops() const { return ops_; }
  runtime::ParamStore& params() { return *params_; }
  const graph::Graph& graph() const { return graph_; }
  // Programs over these weights. The model must outlive them.
  std::unique_ptr<runtime::Program> generator(int64_t max_tokens);
  std::unique_ptr<runtime::Program> scorer(int64_t max_tokens);

 private:
  std::unique_ptr<runtime::Program> program(const graph::Graph& graph, const runtime::ProgramSettings& settings);
  kernels::Ops& ops_;
  std::unique_ptr<formats::WeightSource> source_;
  models::LoraPlan lora_;
  models::BuildOptions options_;
  graph::Graph graph_, score_graph_;
  kernels::KernelPlan plan_;
  std::unique_ptr<runtime::ParamStore> params_;
};

}  // namespace mxt::infer
