// Writes a tokenizer as transformers reads it, and as llama.cpp does.
#pragma once

#include <string>

#include "tokenizer/model/vocab.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

// `spec.model`'s tokens live in `vocab`. Files: tokenizer.json, tokenizer_config.json, chat_template.jinja.
void save_folder(const Spec& spec, const Vocab& vocab, const std::string& dir);
std::string tokenizer_json(const Spec& spec, const Vocab& vocab);

// The keys of a GGUF. kMissing for a tokenizer that llama.cpp has no like of.
GgufTokenizerData to_gguf_data(const Spec& spec, const Vocab& vocab, const Tokenizer& self);

}  // namespace mxt::tokenizer
