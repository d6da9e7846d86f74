#include "formats/classifier.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/family.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kSuffix = "ForSequenceClassification";

}  // namespace

std::string classifier_architecture(const ModelConfig& c) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kPrefixes{{{"llama", "Llama"},
                                                                                     {"mistral", "Mistral"},
                                                                                     {"qwen2", "Qwen2"},
                                                                                     {"qwen3", "Qwen3"},
                                                                                     {"qwen3_moe", "Qwen3Moe"},
                                                                                     {"gemma3_text", "Gemma3Text"},
                                                                                     {"phi3", "Phi3"},
                                                                                     {"olmo2", "Olmo2"},
                                                                                     {"gpt_oss", "GptOss"},
                                                                                     {"qwen3_5_text", "Qwen3_5Text"},
                                                                                     {"gpt2", "GPT2"}}};
  for (const auto& [type, prefix] : kPrefixes)
    if (c.model_type == type) return std::string(prefix) + std::string(kSuffix);
  return "";
}

bool is_classifier(const ModelConfig& c) { return c.architecture.ends_with(kSuffix); }

int64_t score_pad(const ModelConfig& c) { return c.pad >= 0 || c.eos.empty() ? c.pad : c.eos[0]; }

size_t score_position(std::span<const int32_t> ids, int64_t pad) {
  MXT_ASSERT(!ids.empty());
  size_t at = ids.size() - 1;
  while (at > 0 && ids[at] == pad) --at;
  return ids[at] == pad ? 0 : at;
}

ModelConfig as_classifier(const ModelConfig& c) {
  const std::string architecture = classifier_architecture(c);
  if (architecture.empty())
    fail_missing("reward models of {} are not built in: transformers has no class for them to be saved as",
                 c.model_type);
  ModelConfig out = c;
  out.architecture = architecture;
  out.pad = score_pad(c);
  OrderedJson j = to_hf_config(out);
  j["architectures"] = OrderedJson::array({architecture});
  j["num_labels"] = 1;
  j["id2label"] = {{"0", "reward"}};
  j["label2id"] = {{"reward", 0}};
  j["pad_token_id"] = out.pad < 0 ? OrderedJson(nullptr) : OrderedJson(out.pad);
  out.raw = std::make_shared<const OrderedJson>(std::move(j));
  return out;
}

}  // namespace mxt::formats
