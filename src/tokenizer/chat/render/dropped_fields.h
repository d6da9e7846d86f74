// What of a chat a template silently leaves out.
#pragma once

#include "tokenizer/chat/render/chat_run.h"

namespace mxt::tokenizer {

// Throws FieldDropped where the input has a tool or a tool call (its name, its arguments) that made no difference to
// the text. `r` is the rendering of run.whole().
void check_dropped_fields(ChatRun& run, const jinja::Rendered& r);

// The messages whose content made no difference to the text: many templates pass over roles they do not know, or over
// the words beside a tool call.
std::vector<size_t> left_out_contents(ChatRun& run, const jinja::Rendered& r);

// Members of messages and of their calls ("tool_calls.function.NAME") that made no difference to the text, and that are
// not part of how messages hang together (roles, calls, their ids): each name once, with the first message that has it.
std::vector<std::pair<std::string, size_t>> unread_members(ChatRun& run, const jinja::Rendered& r);

// Assistant messages whose reasoning, a member or between <think> and </think> of the content, made no difference to
// the text though the template knows reasoning: some leave out that of earlier turns.
std::vector<size_t> left_out_thoughts(ChatRun& run, const jinja::Rendered& r);

}  // namespace mxt::tokenizer
