// A small golden model under an optimizer, as the trainer drives it.
#pragma once

#include <map>

#include "base/threads.h"
#include "checkpoint/adapter.h"
#include "checkpoint/state.h"
#include "folders.h"
#include "models/tiny.h"
#include "optim/optimizer.h"

namespace mxt::optim::test {

inline std::string folder_of(const std::string& model) {
  return model == "llama_wide" ? std::string(kSourceDir) + "/tests/golden/optimizers/llama_wide" : tiny::golden(model);
}
// llama_wide has llama_mqa's vocabulary and rows.
inline std::string rows_of(const std::string& model) {
  return tiny::golden(model == "llama_wide" ? "llama_mqa" : model);
}
inline Json golden_of(const std::string& model) {
  return read_json_file(std::string(kSourceDir) + "/tests/golden/optimizers/" + model + ".json");
}

// The settings of tools/golden/optimizers.py for one of its trajectories.
inline config::Train settings(const Json& golden, const std::string& name) {
  static const std::map<std::string, config::OptimizerName> names{
      {"adamw", config::OptimizerName::kAdamwTorch},    {"lion", config::OptimizerName::kLion},
      {"adafactor", config::OptimizerName::kAdafactor}, {"adamw_8bit", config::OptimizerName::kAdamw8bit},
      {"muon", config::OptimizerName::kMuon},           {"muon_pretrain", config::OptimizerName::kMuon},
      {"muon_torch", config::OptimizerName::kMuon}};
  const Json& s = golden["settings"];
  config::Train t;
  t.method = config::default_method(config::MethodKind::kFull);
  t.optimizer.name = names.at(name);
  t.optimizer.betas = {s["betas"][0], s["betas"][1]};
  t.optimizer.eps = s["eps"];
  t.optimizer.weight_decay = s["weight_decay"];
  t.optimizer.grad_clip = name.starts_with("muon") ? 0.0 : s["grad_clip"].get<double>();
  t.schedule.warmup_ratio = s["warmup_ratio"];
  if (s["lr"].contains(name)) t.optimizer.lr = s["lr"][name];
  if (name.starts_with("muon")) {
    const Json& m = s["muon"];
    config::Muon muon;
    if (name == "muon_torch") muon.variant = config::MuonVariant::kTorch;
    if (name == "muon_pretrain") muon.schedule = config::MuonSchedule::kPretrain;
    muon.lr = m["lr"];
    muon.weight_decay = m["weight_decay"];
    muon.embedding_lr = m["embedding_lr"].get<double>();
    muon.head_lr = m["head_lr"].get<double>();
    muon.scalar_lr = m["scalar_lr"].get<double>();
    t.optimizer.muon = muon;
  }
  return t;
}

class Training {
 public:
  Training(const std::string& model, const config::Train& train, kernels::Ops& ops, DType type = DType::kF32,
           const models::LoraPlan* lora = nullptr)
      : rows_(rows_of(model)),
        source_(formats::WeightSource::open(folder_of(model))),
        graph(models::build(source_->config(), options(type, lora))),
        optimizer(make_optimizer(train, graph)),
        params(graph, true, nullptr, runtime::Offload::kNone, optimizer->states()),
        program_(graph, plan_, ops, {256, 0, false}) {
    checkpoint::load_base(graph, params, *source_);
    if (lora) checkpoint::init_adapter(graph, params, 7);
    program_.allocate(params);
    optimizer->bind(params, ops);
  }
  // The loss before the update of step `step` (from 0) of `steps`, two rows a step.
  double step(int64_t step, int64_t steps = 20) {
    constexpr size_t kRows = 40;
    tiny::Packed batch = tiny::read_rows(rows_, static_cast<size_t>(2 * step) % kRows, 2);
    program_.run(batch.batch());
    double sum = 0;
    for (size_t t = 0; t < batch.ids.size(); ++t) sum += static_cast<double>(program_.nll()[t]);
    optimizer->update({step + 1, steps});
    return sum / static_cast<double>(batch.count);
  }
  // Everything that a resume needs, as bytes.
  std::string bytes() const {
    std::string all;
    for (size_t i = 0; i < graph.params.size(); ++i)
      for (const runtime::StateArray& a : params.arrays(static_cast<graph::ParamId>(i))) {
        if (a.name == "grad") continue;
        const auto array = params.read_array(static_cast<graph::ParamId>(i), a.name);
        all.append(static_cast<const char*>(array.data), array.bytes);
      }
    return all;
  }

 private:
  static models::BuildOptions options(DType type, const models::LoraPlan* lora) {
    models::BuildOptions o;
    o.type = type;
    o.train_base = lora == nullptr;
    o.lora = lora;
    o.positions = 64;
    o.head_chunk = 64;
    return o;
  }
  std::string rows_;
  std::unique_ptr<formats::WeightSource> source_;
  kernels::KernelPlan plan_;

 public:
  graph::Graph graph;
  std::unique_ptr<Optimizer> optimizer;
  runtime::ParamStore params;

 private:
  runtime::Program program_;
};

}  // namespace mxt::optim::test
