// nanochat's conversation format: its special tokens, and the chat template that renders what its tokenizer does
// (render_conversation of nanochat/tokenizer.py). Trained are the assistant's text, python_start, expression and
// python_end, and assistant_end; not the headers, and nothing from output_start through output_end, which come from the
// calculator.
#pragma once

#include <string>
#include <vector>

namespace mxt::tokenizer {

inline constexpr const char *kPythonStart = "<|python_start|>", *kPythonEnd = "<|python_end|>",
                            *kOutputStart = "<|output_start|>", *kOutputEnd = "<|output_end|>";

// In the order of their ids.
const std::vector<std::string>& nanochat_specials();
// Jinja. A first system message goes before the first user text, with an empty line; roles must alternate.
extern const char* const kNanochatTemplate;

}  // namespace mxt::tokenizer
