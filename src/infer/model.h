// A model in memory for use: base weights, optionally with a LoRA adapter beside them, and further adapters over the
// same weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "formats/weight_source.h"
#include "graph/graph.h"
#include "infer/shown.h"
#include "kernels/api.h"
#include "kernels/plan.h"
#include "models/model.h"
#include "runtime/params.h"
#include "runtime/program.h"

namespace mxt::infer {

// How weights are held: decoded to the computing type; or with the values that the file has, in the blocks of a GGUF
// file where the device multiplies with those (Q4_0 to Q8_0 and Q4_K to Q6_K on the CPU: a quarter to 0.7 of the
// memory) or in BF16 in the same order (kernels/blocks.h); or decoded for many tokens at once: laid out once more as
// the CPU's products read them, as far as there is memory for it (half of what is free), which changes no result.
enum class Weights : uint8_t { kDecoded, kAsStored, kForMany };

class Model {
 public:
  // `path`: HF folder or .gguf; `adapter`: PEFT folder or "". `positions`: longest sequence that will be used, at most
  // the model's own maximum (0 = that maximum, at most 8,192).
  Model(const std::string& path, const std::string& adapter, DType type, int64_t positions, kernels::Ops& ops,
        Weights weights = Weights::kDecoded);
  // Over the live weights of a training run, which must outlive it: nothing is copied. `options`: the run's, whose
  // parameters the store has. The scheduler's cache must be forgotten whenever they change.
  Model(const formats::ModelConfig& config, const models::BuildOptions& options, runtime::ParamStore& live,
        int64_t positions, kernels::Ops& ops);
  // How its graph is built from the run's own.
  static models::BuildOptions generation(models::BuildOptions options, int64_t positions);
  ~Model();
  Model(const Model&) = delete;

  const formats::ModelConfig& config() const { return config_; }
  int64_t vocab() const { return config().vocab_size; }
  int64_t positions() const { return options_.positions; }
  DType type() const { return options_.type; }
  kernels::Ops& ops() const { return ops_; }
  runtime::ParamStore& params() { return *store_; }
  const graph::Graph& graph() const { return graph_; }
  // One more adapter over the base weights, which are not copied; its number. Not together with the constructor's
  // adapter.
  int add_adapter(const std::string& folder);
  int adapters() const { return static_cast<int>(adapters_.size()); }
  // What Weights::kForMany lays out once more where so much memory is free: all products or, where that would take more
  // than half of it, 0.
  static int64_t packed_bytes(const graph::Graph& g, kernels::Ops& ops, int64_t free);
  // Programs over these weights; `adapter`: a number of add_adapter, −1 for the model as constructed. The model must
  // outlive them.
  std::unique_ptr<runtime::Program> generator(int64_t max_tokens, int adapter = -1);
  std::unique_ptr<runtime::Program> scorer(int64_t max_tokens);
  // What pictures become for a generator (PictureBatch::features), [tokens, Pictures::features]. Of a model that sees
  // them; one picture is seen as it would be beside others.
  std::vector<float> see(const Shown& shown);

 private:
  kernels::Ops& ops_;
  std::unique_ptr<formats::WeightSource> source_;  // null over live weights
  formats::ModelConfig config_;
  models::LoraPlan lora_;
  models::BuildOptions options_;
  graph::Graph graph_, score_graph_;
  std::unique_ptr<graph::Graph> tower_;  // of see(), once it is asked for
  void round_inputs(graph::Graph& g) const;
  void plan(const graph::Graph& g, const runtime::ProgramSettings& settings);
  void pack();
  const Weights weights_;
  bool packed_weights_ = false;
  kernels::KernelPlan plan_;
  checkpoint::BlockWeights blocks_;              // of the parameters that have any
  std::unique_ptr<runtime::ParamStore> params_;  // its own, or null
  runtime::ParamStore* store_ = nullptr;
  struct Adapter;
  std::vector<std::unique_ptr<Adapter>> adapters_;
};

}  // namespace mxt::infer
