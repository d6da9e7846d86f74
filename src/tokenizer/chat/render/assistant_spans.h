// Where in a rendered chat the assistant speaks: what is trained on.
#pragma once

#include <vector>

#include "tokenizer/chat/render/chat_run.h"

namespace mxt::tokenizer {

// From after the generation prompt through the end-of-turn token of each assistant turn, or what the template marks
// with {% generation %}; of the messages that `trained` says. Throws TurnNotLocated. `r` is the rendering of
// run.whole().
std::vector<Span> assistant_spans(ChatRun& run, const jinja::Rendered& r, const std::vector<bool>& trained);

}  // namespace mxt::tokenizer
