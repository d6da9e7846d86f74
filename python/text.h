// A tokenizer with its chat template, as Python holds it.
#pragma once

#include <string>
#include <vector>

#include "bindings.h"
#include "model_files.h"

namespace mxt::python {

struct Text {
  std::string name;  // as it was asked for
  app::TokenizerBundle side;
};

// A conversation as the template has it; `plain`, where wanted: its bytes that are text and never control tokens.
// Errors: kBadInput where the model has no template, or refuses the messages.
std::string rendered(const app::TokenizerBundle& side, nb::handle messages, nb::handle tools,
                     bool add_generation_prompt, std::vector<tokenizer::Span>* plain, const std::string& name);

}  // namespace mxt::python
