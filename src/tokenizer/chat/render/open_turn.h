// A chat whose last message stays open for the model to go on with: transformers' continue_final_message.
#pragma once

#include "base/json.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {

// Marks the end of the last message's text and returns the text as it was. Errors: kBadInput where it has none.
std::string mark_open_turn(OrderedJson& messages, const std::string& name);

// Cuts the rendering where the mark stands; a template that trims the text has its end trimmed here as well. Errors:
// kBadInput where the text or its end is not in the rendering.
void cut_open_turn(RenderedChat& chat, const std::string& said, const std::string& name);

}  // namespace mxt::tokenizer
