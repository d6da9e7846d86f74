// One chat made ready for its template: the input as values that know where they came from, and renderings of it with
// parts changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jinja/eval/interp.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {

// What a Tag's origin stands for.
struct Origin {
  enum class Part : uint8_t { kTemplate, kRole, kField, kCallName, kCallArguments, kCallOther, kTool, kKwarg };
  Part part = Part::kTemplate;
  int32_t message = -1;
  int32_t item = -1;    // which tool call of the message, or which tool
  bool plain = false;   // control tokens in it are plain text
  int32_t member = -1;  // of kField: which member of the message, in its order
};

// A rendering to be done; by default the whole chat as asked for.
struct Variant {
  std::vector<jinja::Value> messages;
  jinja::Value tools;
  bool add_generation_prompt = false;
  bool with_kwargs = true;
};

class ChatRun {
 public:
  // The input is given to the template as it is: normalized and in its form (chat/input) by who has it.
  ChatRun(const ChatTemplate& t, const ChatInput& input, const jinja::Limits& limits);
  ChatRun(const ChatRun&) = delete;

  jinja::Rendered render(const Variant& v);
  // The same, with nothing where the template fails on this variant; limits still throw.
  std::optional<jinja::Rendered> try_render(const Variant& v);

  const Variant& whole() const { return whole_; }
  const std::vector<jinja::Value>& messages() const { return whole_.messages; }
  const Origin& origin(uint32_t id) const { return origins_[id]; }
  bool is_assistant(size_t i) const;
  bool reads_generation_prompt() const { return template_.jinja().reads("add_generation_prompt"); }
  const ChatTemplate& chat_template() const { return template_; }
  jinja::Machine& machine() { return machine_; }

  // A copy of message i without one key, or with one value in place of another.
  jinja::Value message_with(size_t i, std::string_view key, std::optional<jinja::Value> value);
  // An assistant message of plain text.
  jinja::Value plain_assistant(size_t i, std::string text);

 private:
  uint32_t add_origin(Origin o);
  jinja::Value make_message(const OrderedJson& message, int32_t index);
  jinja::Value make_tool_calls(const OrderedJson& calls, int32_t message);
  jinja::Value make_call(const OrderedJson& call, int32_t message, int32_t item);
  void add_kwargs(const OrderedJson& kwargs);

  const ChatTemplate& template_;
  jinja::Machine machine_;
  std::vector<Origin> origins_;
  Variant whole_;
  jinja::Variables tokens_, kwargs_;
  int64_t now_;
  bool first_ = true;
};

}  // namespace mxt::tokenizer
