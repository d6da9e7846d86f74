#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "base/text.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::tokenizer {
namespace {

// Spellings of the sets and tools in use; OpenAI's fine-tuning has `weight`.
constexpr std::array kFlags = {"loss",      "train",  "training",    "trainable",  "train_on_turn", "train_on",
                               "loss_mask", "weight", "loss_weight", "loss_scale", "masked"};

bool flag_of(const OrderedJson& v, const std::string& at, const std::string& key) {
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number()) {
    const auto x = v.get<double>();
    if (x == 0 || x == 1) return x == 1;
    throw BadChat(at, fmt::format(": a {} other than 0 and 1 is not built in: leave such turns out", key),
                  Exit::kMissing);
  }
  throw BadChat(at, fmt::format(": \"{}\" is {}: true or false is wanted", key, json_text(v).substr(0, 60)));
}

}  // namespace

LossFlags take_loss_flags(OrderedJson& messages, std::string_view name) {
  LossFlags out;
  for (size_t i = 0; i < messages.size(); ++i) {
    OrderedJson& m = messages[i];
    const std::string at = fmt::format("{}[{}]", name, i);
    std::optional<bool> says;
    for (const std::string key : kFlags) {
      const auto it = m.find(key);
      if (it == m.end()) continue;
      const bool trained = it->is_null() ? says.value_or(true) : flag_of(*it, at, key) != (key == "masked");
      if (!it->is_null() && says && *says != trained)
        throw BadChat(at, fmt::format(": \"{}\" contradicts another member about training on this turn", key));
      if (!it->is_null()) says = trained;
      m.erase(it);
    }
    out.trained.push_back(says.value_or(true));
    const auto role = m.find("role");
    if (says == true && (role == m.end() || *role != "assistant")) out.not_taken.push_back(i);
  }
  return out;
}

}  // namespace mxt::tokenizer
