#include "infer/model.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"

namespace mxt::infer {

Model::Model(const std::string& path, const std::string& adapter, DType type, int64_t positions, kernels::Ops& ops)
    : ops_(ops), source_(formats::WeightSource::open(path)) {
  options_.type = type;
  options_.purpose = models::Purpose::kGenerate;
  options_.positions = positions > 0 ? std::min(positions, config().max_positions) : std::min<int64_t>(config().max_positions, 8192);
  if (!adapter.empty()) {
    lora_ = checkpoint::adapter_plan(adapter);
    options_.lora = &lora_;
  }
  graph_ = models::build(config(), options_);
  models::BuildOptions score = options_;
  score.purpose = models::Purpose::kScore;
  score_graph_ = models::build(config(), score);
  // A quantized folder runs as its layout defines: inputs of its products are rounded as the weights were.
  const auto rounding = [](const void* source, const std::string& weight) {
    return static_cast<graph::Rounding>(static_cast<const formats::WeightSource*>(source)->input_rounding(weight));
  };
  static_assert(static_cast<int>(graph::Rounding::kMxfp4) == static_cast<int>(formats::InputRounding::kMxfp4));
  for (graph::Graph* g : {&graph_, &score_graph_}) graph::round_inputs(*g, rounding, source_.get());
  params_ = std::make_unique<runtime::ParamStore>(graph_, false, ops.device());
  checkpoint::load_base(graph_, *params_, *source_);
  if (!adapter.empty()) checkpoint::load_adapter(adapter, graph_, *params_);
}

std::unique_ptr<runtime::Program> Model::generator(int64_t max_tokens) {
  auto p = std::make_unique<runtime::Program>(graph_, plan_, ops_, runtime::ProgramSettings{max_tokens, 0, true});
  p->allocate(*params_);
  return p;
}

std::unique_ptr<runtime::Program> Model::scorer(int64_t max_tokens) {
  auto p = std::make_unique<runtime::Program>(score_graph_, plan_, ops_, runtime::ProgramSettings{max_tokens, 0, false});
  p->allocate(*params_);
  return p;
}

}  // namespace mxt::infer
