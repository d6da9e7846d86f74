// Models that people name: short names for ids of the Hub, with license, architecture and size. The table is
// recipes/assumptions/models.yaml.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::config {

struct KnownModel {
  std::string name;          // what a recipe or --model may say: qwen3-8b
  std::string id;            // on the Hub: Qwen/Qwen3-8B
  std::string revision;      // branch, tag or commit; "" = the newest
  std::string license;       // as SPDX spells it, or the Hub's word
  std::string architecture;  // model_type of its config.json
  double parameters = 0;     // 1e9
  bool gated = false;        // the Hub asks for a token of who accepted its terms
};

// In the order of the file. Names and ids are unique.
const std::vector<KnownModel>& known_models();
const KnownModel* model_of_name(std::string_view short_name);  // any case; null where there is none
std::string nearest_model(std::string_view name);              // a short name like it; "" where none is near
const KnownModel* model_of_id(std::string_view hub_id);        // any case; null where there is none

}  // namespace mxt::config
