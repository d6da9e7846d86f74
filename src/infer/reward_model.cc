#include "infer/reward_model.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "checkpoint/heads.h"
#include "checkpoint/weights.h"
#include "formats/classifier.h"
#include "formats/family.h"
#include "formats/peft.h"
#include "infer/alone.h"

namespace mxt::infer {
namespace {

constexpr int64_t kTokensPerPass = 2048;

models::BuildOptions build_options(DType type, int64_t longest, const models::LoraPlan* lora) {
  models::BuildOptions o;
  o.type = type;
  o.purpose = models::Purpose::kScore;
  o.head = models::Head::kScore;
  o.positions = longest;
  o.lora = lora;
  return o;
}

int64_t pass_of(int64_t longest) { return std::max(kTokensPerPass, longest); }

}  // namespace

RewardModel::Bytes RewardModel::bytes(const formats::ModelConfig& config, const models::LoraPlan* lora, DType type,
                                      int64_t longest, kernels::Ops& ops) {
  longest = std::min(longest, config.max_positions);
  const graph::Graph g = models::build(config, build_options(type, longest, lora));
  const runtime::ProgramSettings settings{pass_of(longest), 0, false, longest};
  return {runtime::ParamStore::measure(g, false, {}).total(),
          runtime::Program(g, plan_alone(g, ops, settings), ops, settings).bytes()};
}

void require_score(const formats::WeightSource& source, const std::string& named) {
  if (!source.has(formats::kScoreWeight))
    fail_input("{}: holds no {}: it is no reward model: train one (train.method.kind: reward), or name its adapter",
               named, formats::kScoreWeight);
}

RewardModel::RewardModel(const std::string& path, const std::string& adapter, DType type, int64_t longest,
                         kernels::Ops& ops)
    : source_(formats::WeightSource::open(path)),
      longest_(std::min(longest, config().max_positions)),
      max_tokens_(pass_of(longest_)) {
  if (!adapter.empty()) lora_ = checkpoint::adapter_plan(adapter, config().family);
  graph_ = models::build(config(), build_options(type, longest_, adapter.empty() ? nullptr : &lora_));
  const bool given = !adapter.empty() && formats::Adapter::open(adapter).replaced().contains(formats::kScoreWeight);
  if (!given) require_score(*source_, adapter.empty() ? path : adapter);
  params_ = std::make_unique<runtime::ParamStore>(graph_, false, ops.device());
  checkpoint::load_base(graph_, *params_, *source_);
  if (!adapter.empty()) checkpoint::load_adapter(adapter, graph_, *params_, nullptr, config().family);
  const runtime::ProgramSettings settings{max_tokens_, 0, false, longest_};
  plan_ = plan_alone(graph_, ops, settings);
  program_ = std::make_unique<runtime::Program>(graph_, plan_, ops, settings);
  program_->allocate(*params_);
}

RewardModel::~RewardModel() = default;

std::vector<float> RewardModel::score(const std::vector<std::vector<int32_t>>& sequences, StopFlag stop) {
  const int64_t pad = formats::score_pad(config());
  std::vector<float> out, scores;
  std::vector<int32_t> ids, positions, cu;
  std::vector<size_t> read;  // rows of the pass
  for (size_t first = 0; first < sequences.size();) {
    check_stop(stop);
    ids.clear(), positions.clear(), read.clear();
    cu.assign(1, 0);
    size_t last = first;
    for (; last < sequences.size(); ++last) {
      const auto& s = sequences[last];
      MXT_ASSERT(!s.empty() && static_cast<int64_t>(s.size()) <= longest_);
      if (static_cast<int64_t>(ids.size() + s.size()) > max_tokens_) break;
      read.push_back(ids.size() + formats::score_position(s, pad));
      for (size_t t = 0; t < s.size(); ++t) positions.push_back(static_cast<int32_t>(t));
      ids.insert(ids.end(), s.begin(), s.end());
      cu.push_back(static_cast<int32_t>(ids.size()));
    }
    runtime::Batch b;
    b.tokens = static_cast<int64_t>(ids.size());
    b.ids = ids.data();
    b.positions = positions.data();
    const std::vector<int32_t> targets(ids.size(), -100);
    b.targets = targets.data();
    b.cu_seqlens = cu.data();
    b.documents = static_cast<int64_t>(cu.size()) - 1;
    program_->run(b);
    scores.resize(ids.size());
    program_->read(graph_.roots.at(0).value, scores.data());
    for (const size_t at : read) out.push_back(scores[at]);
    first = last;
  }
  return out;
}

}  // namespace mxt::infer
