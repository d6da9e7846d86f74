// Learning a vocabulary, as `tokenizer train` and a run whose recipe says `model.tokenizer: train` do it.
#pragma once

#include <string>

#include "tokenizer/train.h"

namespace mxt::app {

// nanochat's: its pattern, ids, special tokens and chat template.
tokenizer::TrainOptions nanochat_tokenizer(int64_t vocab_size);

// Refuses (kBadInput) what was learned from no text, or from texts that hold fewer pairs than the vocabulary asks for.
// `texts`: what they were read from; `setting`: what the size is called there.
void check_filled(const tokenizer::TrainOptions& options, const tokenizer::Trained& made, const std::string& texts,
                  const std::string& setting);

}  // namespace mxt::app
