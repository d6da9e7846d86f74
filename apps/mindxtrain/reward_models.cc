#include "reward_models.h"

#include "base/error.h"
#include "formats/classifier.h"
#include "formats/peft.h"
#include "infer/reward_model.h"

namespace mxt::app {
namespace {

bool same_tokens(const tokenizer::Tokenizer& a, const tokenizer::Tokenizer& b) {
  if (a.vocab_size() != b.vocab_size()) return false;
  for (int32_t id = 0; id < a.vocab_size(); ++id)
    if (a.token(id) != b.token(id)) return false;
  return true;
}

}  // namespace

std::string model_with_head(const std::string& named) {
  if (!formats::Adapter::is_adapter(named)) return named;
  const formats::Adapter adapter = formats::Adapter::open(named);
  return adapter.replaced().contains(formats::kScoreWeight) ? "" : adapter.config().base_model_name_or_path;
}

std::string require_reward_model(const std::string& named, Fetch fetch) {
  const std::string model = model_with_head(named);
  if (model.empty()) return named;
  const std::string folder = resolve_model(model, std::nullopt, fetch);
  infer::require_score(*formats::WeightSource::open(folder), named);
  return model == named ? folder : named;
}

train::RewardServices::ScoreSequences open_reward_model(const std::string& folder, const tokenizer::Tokenizer& policy,
                                                        DType type, int64_t longest, kernels::Ops& ops) {
  std::string path, adapter;
  if (formats::Adapter::is_adapter(folder)) {
    const formats::AdapterConfig config = formats::Adapter::open(folder).config();
    if (config.base_model_name_or_path.empty())
      fail_input("{}: its adapter_config.json names no base (base_model_name_or_path): add it", folder);
    adapter = folder;
    path = resolve_model(config.base_model_name_or_path,
                         config.revision.empty() ? std::nullopt : std::optional(config.revision));
  } else {
    path = resolve_model(folder, std::nullopt);
  }
  if (!has_tokenizer(path) || !same_tokens(*load_text_side(path).tok, policy))
    fail_input(
        "{}: the reward model has another tokenizer than the policy, whose tokens it would misread: train one on the "
        "policy's base (train.method.kind: reward)",
        folder);
  const auto model = std::make_shared<infer::RewardModel>(path, adapter, type, longest, ops);
  return [model, folder](const std::vector<std::vector<int32_t>>& sequences, StopFlag stop) {
    for (const auto& s : sequences) {
      if (static_cast<int64_t>(s.size()) > model->longest())
        fail_input("{}: an answer with its prompt has {} tokens, the reward model's context is {}", folder, s.size(),
                   model->longest());
      for (const int32_t id : s)
        if (id >= model->config().vocab_size)
          fail_input("{}: token id {} is outside the reward model's vocabulary of {}", folder, id,
                     model->config().vocab_size);
    }
    return model->score(sequences, stop);
  };
}

}  // namespace mxt::app
