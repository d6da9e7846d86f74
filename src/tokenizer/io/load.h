// Readers: from files to a Spec.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace mxt::tokenizer {

Spec spec_from_json(std::string_view tokenizer_json, const std::string& source);
Spec spec_from_folder(const std::string& dir);
Spec spec_from_gguf(const GgufTokenizerData& data);
Spec spec_of_characters(std::string_view data);

// Byte-level parts as tokenizer.json spells them: the split pattern (or "" for GPT-2's own), digits apart or not.
void set_byte_level(Spec& spec, std::string_view pattern, bool digits_apart);

}  // namespace mxt::tokenizer
