// A byte-level vocabulary of a few merges, for tests that write models with their tokenizer.
#pragma once
#include <memory>
#include <string_view>
#include <utility>

#include "tokenizer/train.h"

namespace mxt::quantize {

// `tokens`: the 256 bytes, the special one and merges of the text.
inline std::shared_ptr<const tokenizer::Tokenizer> small_tokenizer(int32_t tokens) {
  tokenizer::TrainOptions o;
  o.vocab_size = tokens;
  o.pattern = "gpt2";
  bool more = true;
  return tokenizer::Tokenizer::from_spec(tokenizer::train_byte_level_bpe(o, [&](std::string_view& t) {
                                           t = "the quick brown fox jumps over the lazy dog and the other dogs";
                                           return std::exchange(more, false);
                                         }).spec);
}

}  // namespace mxt::quantize
