// Where an answer ends: the one definition, for chat, serving, evaluation, rollouts and grammars.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/model_config.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::infer {

// Every token that ends a turn, each once: the tokenizer's eos_token; config.json's and generation_config.json's
// eos_token_id; a GGUF file's eos, eot and eom; and what stands at the end of an assistant's turn (with a text, with a
// call) as the template writes it and training trains on it; with nanochat's tokens the BOS too. `chat` may be null.
// Ids outside the model's vocabulary are left out: they can never come.
std::vector<int32_t> end_of_turn(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate* chat,
                                 const formats::ModelConfig& config);

}  // namespace mxt::infer
