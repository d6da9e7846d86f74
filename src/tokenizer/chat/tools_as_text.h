// data.tools_in: system. A chat template that knows no tools, made to take them: tools are listed in the system
// message, calls are text of the assistant's turn (Hermes' form, which `serve` reads back), results come from the user.
#pragma once

#include <string>
#include <string_view>

namespace mxt::tokenizer {

// The template with a beginning that rewrites `messages` so and then has no `tools`. It is a template like any other:
// whoever loads it (this program, transformers, vLLM) writes the same text.
std::string with_tools_as_text(std::string_view source);

}  // namespace mxt::tokenizer
