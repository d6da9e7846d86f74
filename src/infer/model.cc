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
  params_ = std::make_unique<runtime::ParamStore>(graph_, false, ops.device());
  checkpoint::load_base(graph_, *params_, *source_);
  if (!adapter.empty()) checkpoint::load_adapter(adapter, graph_, *params_);
}

// What a request gets must not depend on how many rows stand beside its own. A library's product may sum a row differently when there
// are more of them (oneDNN's does), and "auto" may choose by their number; our panels never do. So where the backend has panels, they
// make every product here.
std::unique_ptr<runtime::Program> Model::program(const graph::Graph& graph, const runtime::ProgramSettings& settings) {
  auto p = std::make_unique<runtime::Program>(graph, plan_, ops_, settings);
  const auto names = ops_.gemm_algorithms();
  if (std::find(names.begin(), names.end(), "panels") != names.end()) {
    size_t added = 0;
    for (const auto& t : p->tunables())
      if (std::holds_alternative<kernels::Gemm>(t.call)) added += plan_.choices.emplace(t.key, "panels").second;
    if (added) p = std::make_unique<runtime::Program>(graph, plan_, ops_, settings);
  }
  p->allocate(*params_);
  return p;
}

std::unique_ptr<runtime::Program> Model::generator(int64_t max_tokens) { return program(graph_, {max_tokens, 0, true}); }

std::unique_ptr<runtime::Program> Model::scorer(int64_t max_tokens) { return program(score_graph_, {max_tokens, 0, false}); }

}  // namespace mxt::infer
