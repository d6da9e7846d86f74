#include "formats/classifier.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/family.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kSuffix = "ForSequenceClassification";

}  // namespace

bool is_classifier(const ModelConfig& c) { return c.architecture.ends_with(kSuffix); }

int64_t score_pad(const ModelConfig& c) { return c.pad >= 0 || c.eos.empty() ? c.pad : c.eos[0]; }

size_t score_position(std::span<const int32_t> ids, int64_t pad) {
  MXT_ASSERT(!ids.empty());
  size_t at = ids.size() - 1;
  while (at > 0 && ids[at] == pad) --at;
  return ids[at] == pad ? 0 : at;
}

ModelConfig as_classifier(const ModelConfig& c) {
  const std::string architecture(c.family->classifier);
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
