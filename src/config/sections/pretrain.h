// Section `pretrain`: a model from scratch by its depth alone.
#pragma once

#include <cstdint>
#include <string>

namespace mxt::config {

struct Pretrain {
  int64_t depth = 0;
  int64_t vocab_size = 32768;           // of the tokenizer
  double tokens_per_parameter = 12;     // the horizon, by the matrices and the head
  std::string window_pattern = "SSSL";  // S: a quarter of the sequence, L: all of it; repeated over the layers
};

}  // namespace mxt::config
