#include "config/vocabulary.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace mxt::config {

std::optional<Vocabulary> learned_vocabulary(const Recipe& r) {
  constexpr int64_t kMost = 1 << 24;
  if (r.pretrain) return Vocabulary{"pretrain.vocab_size", r.pretrain->vocab_size};
  if (r.model.init != Init::kRandom || r.model.config.json.empty()) return std::nullopt;
  const OrderedJson config = parse_ordered_json(r.model.config.json, "model.config");
  const auto size = config.is_object() ? config.find("vocab_size") : config.end();
  if (size == config.end() || !size->is_number_integer() || *size < 2 || *size > kMost) return std::nullopt;
  return Vocabulary{"model.config.vocab_size", size->get<int64_t>()};
}

}  // namespace mxt::config
