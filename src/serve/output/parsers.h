// From a model's text to what a client reads: reasoning, content and tool calls, while the text comes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mxt::serve {

// A piece of the answer. A tool call begins with a delta that has id and name; its arguments follow in pieces.
struct Delta {
  // kNoReasoning: what was given as reasoning was the answer itself, which follows once more as what it is.
  enum class Kind : uint8_t { kContent, kReasoning, kNoReasoning, kToolBegin, kToolArguments } kind = Kind::kContent;
  std::string text;   // content, reasoning, or a piece of the arguments
  int64_t index = 0;  // of the tool call
  std::string id, name;
};
using Deltas = std::vector<Delta>;

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  virtual void push(std::string_view text, Deltas& out) = 0;
  // `ended`: the model ended the answer itself; else it was cut off.
  virtual void finish(Deltas& out, bool ended) = 0;
  // Whether what has come ends inside a call, before its arguments are whole.
  virtual bool in_call() const { return false; }
};

enum class ReasoningStyle : uint8_t { kNone, kThinkTags };
enum class ToolStyle : uint8_t { kNone, kHermes, kQwenCoder };

struct ParserSettings {
  ReasoningStyle reasoning = ReasoningStyle::kNone;
  bool starts_thinking = false;  // all is reasoning until </think>, with or without a <think> before
  ToolStyle tools = ToolStyle::kNone;
  const OrderedJson* tool_list = nullptr;  // the request's tools: types of the XML style's parameters
  std::string id_prefix = "call_";         // a tool call's id is this and its number
};
// Reasoning first, tool calls in what is content.
std::unique_ptr<OutputParser> make_parser(const ParserSettings& settings);

// The parts.
//   <think>…</think>: its inside is reasoning; the newlines around the tags belong to neither. Where the prompt opened
//   it and an answer ended without a tag there was no reasoning (a model tuned on plain answers).
std::unique_ptr<OutputParser> think_parser(bool starts_thinking, std::unique_ptr<OutputParser> content);
//   Hermes: <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>. The arguments stream as they are written; a block
//   that is not such an object is content. Several objects in one block are several calls, and a call ends where its
//   object does: the next may begin without </tool_call>.
std::unique_ptr<OutputParser> hermes_parser(std::string id_prefix);
//   Qwen-coder: <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>. A value
//   is JSON where the tool's schema says that it is no string, and else text. Tags that are missing before the next one
//   are taken for written; what stands between parameters is content.
std::unique_ptr<OutputParser> qwen_coder_parser(std::string id_prefix, const OrderedJson* tools);

// A token that these parsers read although it is a control token of some models.
bool is_tag(std::string_view token);

// How much of the end of `text` may be the beginning of `tag`.
size_t partial_tag(std::string_view text, std::string_view tag);

}  // namespace mxt::serve
