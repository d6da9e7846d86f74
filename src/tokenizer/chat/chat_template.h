// A model's chat template: messages in, text out, with what of it is trained on and which bytes are plain text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "jinja/jinja.h"
#include "tokenizer/span.h"

namespace mxt::tokenizer {

// The template's own refusal (raise_exception): jinja::TemplateRefused. Its mistakes: jinja::TemplateError. Its
// excesses: jinja::TemplateLimit. All are kBadInput and name the template and the line.

// The template leaves out tools or tool calls that the input has.
class FieldDropped : public Error {
 public:
  explicit FieldDropped(const std::string& message) : Error(Exit::kBadInput, message) {}
};

// An assistant turn cannot be located exactly in the text, so there is no mask to train with.
class TurnNotLocated : public Error {
 public:
  explicit TurnNotLocated(const std::string& message) : Error(Exit::kBadInput, message) {}
};

// Borrowed for the call. Null stands for nothing. Messages and tools may come in any spelling of input/conversation.h
// (errors: BadChat) and get the form that the template takes.
struct ChatInput {
  const OrderedJson* messages = nullptr;  // array of objects
  const OrderedJson* tools = nullptr;     // array of objects
  bool add_generation_prompt = false;
  // For render_prompt(): the text ends where the last message's does, for the model to go on with it (not beside
  // add_generation_prompt). Errors: kBadInput where that message has no text, or the template changes it.
  bool continue_final_message = false;
  // chat_template_kwargs: an object of further variables. A name that the template's own machinery or a special token
  // has is refused (kBadInput).
  const OrderedJson* kwargs = nullptr;
  int64_t now = -1;  // seconds since 1970 for strftime_now (local time); -1: the clock
  // For render(): assistant turns before this message are context, not trained on; others may say so themselves
  // (take_loss_flags).
  size_t trained_from = 0;
};

struct RenderedChat {
  std::string text;
  std::vector<Span> assistant;   // bytes to train on: after the generation prompt, through the end-of-turn token
  std::vector<Span> plain;       // bytes from the input: control tokens in them are plain text
  std::vector<CallSpan> calls;   // of trained turns with tool calls, all but their content; sorted and disjoint
  std::vector<size_t> left_out;  // messages whose content the text has nothing of
  // Members of messages and of their calls that make no difference to the text, each with the first message that has
  // it.
  std::vector<std::pair<std::string, size_t>> unread;
  // Assistant messages whose reasoning the text has nothing of; of render() those that are trained on.
  std::vector<size_t> left_out_thoughts;
  size_t last_message = 0;        // where the text of the last message begins; the text's end where it has none
  std::vector<size_t> not_taken;  // messages that ask to be trained on and are not the assistant's
};

// Never changed once compiled: any number of threads may render.
class ChatTemplate {
 public:
  // special_tokens: what the template sees by name (bos_token, eos_token, …). control_tokens: further tokens that may
  // end a turn, as the tokenizer lists them. Throws jinja::TemplateError.
  static std::shared_ptr<const ChatTemplate> compile(std::string_view source, std::string_view name,
                                                     const std::map<std::string, std::string>& special_tokens,
                                                     const std::vector<std::string>& control_tokens = {},
                                                     const jinja::Limits& limits = {});
  // The same, but chats that come with tools (even an empty list) are `tools`' to render, as with transformers'
  // tool_use.
  std::shared_ptr<const ChatTemplate> with_tools(std::shared_ptr<const ChatTemplate> tools) const;

  // For training: everything, or an error where a turn cannot be located.
  RenderedChat render(const ChatInput& input) const;
  // For inference: text and plain spans only.
  RenderedChat render_prompt(const ChatInput& input) const;

  const std::string& name() const { return template_->name(); }
  const jinja::Template& jinja() const { return *template_; }
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }
  const std::vector<std::string>& control_tokens() const { return control_tokens_; }
  const jinja::Limits& limits() const { return limits_; }

 private:
  struct Lazy;  // Forms, found when first needed
  ChatTemplate() = default;
  RenderedChat render_in_form(const ChatInput& input, bool train) const;
  std::shared_ptr<const jinja::Template> template_;
  std::shared_ptr<const ChatTemplate> tools_;  // null: this one renders all
  std::map<std::string, std::string> special_tokens_;
  std::vector<std::string> control_tokens_;
  jinja::Limits limits_;
  std::shared_ptr<Lazy> forms_;
};

}  // namespace mxt::tokenizer
