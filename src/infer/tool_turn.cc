#include "infer/tool_turn.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mxt::infer {

ToolTurn::ToolTurn(std::shared_ptr<const tokenizer::Tokenizer> tok, std::shared_ptr<const tokenizer::ChatTemplate> chat,
                   int64_t most)
    : tok_(std::move(tok)), chat_(std::move(chat)), most_(most) {
  try {
    const Call probe{"look", OrderedJson::object()};
    const std::string result = "{}";
    after({&probe, 1}, {&result, 1});
  } catch (const Error& e) {
    fail_input("train.method.tools: the chat template does not show results of calls ({}): set data.tools_in: system",
               e.what());
  }
}

std::string ToolTurn::cut(const std::string& result) const {
  const tokenizer::Span plain{0, result.size()};
  std::vector<int32_t> ids = tok_->encode(result, {&plain, 1});
  if (static_cast<int64_t>(ids.size()) <= most_) return result;
  ids.resize(static_cast<size_t>(most_));
  return tok_->decode(ids);
}

std::vector<int32_t> ToolTurn::after(std::span<const Call> calls, std::span<const std::string> results) const {
  MXT_ASSERT(calls.size() == results.size() && !calls.empty());
  OrderedJson made = OrderedJson::array(), tools = OrderedJson::array(), answers = OrderedJson::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string id = fmt::format("call{:05}", i);
    const OrderedJson function{{"name", calls[i].name}, {"arguments", calls[i].arguments}};
    made.push_back({{"type", "function"}, {"id", id}, {"function", function}});
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", calls[i].name},
                       {"description", ""},
                       {"parameters", {{"type", "object"}, {"properties", OrderedJson::object()}}}}}});
    answers.push_back({{"role", "tool"}, {"tool_call_id", id}, {"name", calls[i].name}, {"content", results[i]}});
  }
  OrderedJson messages = OrderedJson::array(
      {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", ""}, {"tool_calls", made}}});
  for (OrderedJson& answer : answers) messages.push_back(std::move(answer));
  tokenizer::ChatInput in;
  in.messages = &messages;
  in.tools = &tools;
  in.now = 0;
  const tokenizer::RenderedChat whole = chat_->render(in);
  if (whole.assistant.empty()) fail_input("it marks no turn of the assistant");
  const size_t end = whole.assistant.front().end;
  in.add_generation_prompt = true;
  const tokenizer::RenderedChat asked = chat_->render_prompt(in);
  if (asked.text.compare(0, end, whole.text, 0, end) != 0)
    fail_input("a generation prompt changes the turns before it");
  std::vector<tokenizer::Span> plain;
  for (const tokenizer::Span& s : asked.plain)
    if (s.begin >= end) plain.push_back({s.begin - end, s.end - end});
  return tok_->encode(std::string_view(asked.text).substr(end), plain);
}

}  // namespace mxt::infer
