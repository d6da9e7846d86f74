// Writes a tokenizer as transformers reads it.
#pragma once

#include <string>

#include "tokenizer/model/vocab.h"
#include "tokenizer/spec.h"

namespace mxt::tokenizer {

// `spec.model`'s tokens live in `vocab`. Files: tokenizer.json, tokenizer_config.json, chat_template.jinja.
void save_folder(const Spec& spec, const Vocab& vocab, const std::string& dir);
std::string tokenizer_json(const Spec& spec, const Vocab& vocab);

}  // namespace mxt::tokenizer
