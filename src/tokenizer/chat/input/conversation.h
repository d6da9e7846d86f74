// Messages, calls and tools in OpenAI's form, out of the spellings in use: the one place for all who render a chat
// (training data, evaluation, `chat`, `tokenizer render`, serving), so that equal input is equal text everywhere. What
// depends on the template is in forms.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace mxt::tokenizer {

// A chat that is not one. `at`: the place, "messages[1].tool_calls[0]"; the text is it and `what`.
class BadChat : public Error {
 public:
  BadChat(const std::string& at, const std::string& what, Exit code = Exit::kBadInput)
      : Error(code, at + what), at_(at) {}
  const std::string& at() const { return at_; }

 private:
  std::string at_;
};

// Both are idempotent; `name` is what the list is called in errors (BadChat), mostly "messages" and "tools".

// Members that are null are left out (but content, where no call stands beside it); the older `function_call` and the
// role `function` are tool_calls and `tool`; text parts are one text (but the assistant's stay parts where
// calculations, `python` and `python_output`, are among them); an assistant's `refusal` without content beside it is
// the content; a call without its envelope gets it, and without arguments {}. Arguments stay as given, object or JSON
// text, but must be one of both. Order and further members stay.
OrderedJson normalize_messages(OrderedJson messages, std::string_view name = "messages");

// A text part, `mark`, in the place of one that shows a picture: its source, the first there is of `image`,
// `image_url`, `url` and `path`, is taken out, and members beside it (of an object: image_url.detail) stay for
// unused_part_members().
OrderedJson picture_part(const OrderedJson& part, std::string_view mark);

// Members of parts that normalize_messages() passes over (cache_control), each with the first message that has it.
std::vector<std::pair<std::string, size_t>> unused_part_members(const OrderedJson& messages);

// Tools, one tool and parameters given as JSON text are parsed; a tool without its envelope gets it.
OrderedJson normalize_tools(OrderedJson tools, std::string_view name = "tools");

// Which turns are trained on, as their own members say: loss, train, training, trainable, train_on_turn, loss_mask,
// weight, loss_weight, loss_scale (true or 1, false or 0) and masked (the other way round). The members are taken out,
// so that no template sees them. Errors (BadChat): no such value, members that contradict each other, and a weight
// between 0 and 1 (kMissing).
struct LossFlags {
  std::vector<bool> trained;      // by message; true where nothing is said
  std::vector<size_t> not_taken;  // messages of others than the assistant that ask to be trained on
};
LossFlags take_loss_flags(OrderedJson& messages, std::string_view name = "messages");

// {"name": …} → {"type": "function", "function": {"name": …}}; anything else stays as it is.
OrderedJson with_envelope(OrderedJson tool);

}  // namespace mxt::tokenizer
