// In which form a template takes what chats hold: call arguments as objects or as text, calls and tools with or without
// their envelope, content as text or as parts. Found by rendering small chats; what a template renders well is given to
// it as it came, so that the text is transformers' own.
#pragma once

#include "base/json.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {

struct Forms {
  bool object_arguments = true;  // an object comes out as JSON, or part by part, and not as Python prints it
  bool text_arguments = false;   // JSON text comes out as it is, and not encoded once more
  bool bare_calls = false;       // reads call.name and knows no call.function
  bool bare_tools = false;
  bool needs_type = false;  // a call without "type" fails
  bool parts = false;       // reads lists of parts and no text
  bool calculates = false;  // reads parts of the types python and python_output
  // What may stand as content beside calls so that they come out, and nothing like "None" with them.
  bool no_content = true, null_content = true, empty_content = true;
};

Forms find_forms(const ChatTemplate& t);

// Normalized messages and tools as the template takes them. Where it reads calculations, those that stand in an
// assistant's text (calculations.h) are parts; where it does not, parts of these types are BadChat.
void put_in_form(const Forms& forms, const ChatTemplate& t, OrderedJson& messages, OrderedJson& tools);

}  // namespace mxt::tokenizer
