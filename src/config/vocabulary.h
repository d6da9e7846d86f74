// How large a vocabulary `model.tokenizer: train` learns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/recipe.h"

namespace mxt::config {

// The setting that says it and the number of tokens: pretrain.vocab_size, else model.config's own vocab_size, written
// in the recipe, of a model from random weights. Nothing where neither is there.
struct Vocabulary {
  std::string setting;
  int64_t size;
};
// Tokens of the smallest: the 256 bytes and nanochat's nine special ones.
inline constexpr int64_t kLeastLearnedVocabulary = 256 + 9;

std::optional<Vocabulary> learned_vocabulary(const Recipe& recipe);

}  // namespace mxt::config
