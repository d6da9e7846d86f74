// Names of a model's modules, as adapters are put on them.
#pragma once

#include <string_view>

namespace mxt::models {

// A linear module of the layers: neither the head nor a table of vectors.
inline bool is_of_layers(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return last != "lm_head" && last != "embed_tokens" && last != "wte" && last != "wpe";
}

}  // namespace mxt::models
