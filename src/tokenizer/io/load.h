// Readers: from files to a Spec.
#pragma once

#include <functional>
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

// split_special_tokens, add_prefix_space, do_lower_case and the like of tokenizer_config.json, for a spec that was read
// from tokenizer.json: each where transformers' class of that name heeds it. `model_type`: config.json's, "" unknown.
void apply_class_flags(const Json& config, std::string_view model_type, Spec& spec);

// Hugging Face gives an added token that the vocabulary lacks the next free id, whatever the file says: true where the
// ids of `spec.added`, in this order, are those that it would give.
bool added_ids_follow(const Spec& spec, const std::function<int32_t(const std::string&)>& id_in_vocab,
                      size_t vocab_count, std::string* why);
// The same for a spec that was just read: kBadInput where they are not.
void check_added_ids(const Spec& spec);

// Byte-level parts as tokenizer.json spells them: the split pattern (or "" for GPT-2's own), digits apart or not.
void set_byte_level(Spec& spec, std::string_view pattern, bool digits_apart);

}  // namespace mxt::tokenizer
