// Hostile templates and hostile chats: whatever they are, rendering ends soon, in a text or in a typed error, and the
// spans lie within the text.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tokenizer/chat/chat_template.h"

namespace {

using namespace mxt;
using namespace mxt::tokenizer;

void require(bool ok) {
  if (!ok) std::abort();
}

void check_spans(const std::vector<Span>& spans, size_t size) {
  size_t last = 0;
  for (const Span& s : spans) {
    require(s.begin >= last && s.begin < s.end && s.end <= size);
    last = s.end;
  }
}

jinja::Limits small() {
  jinja::Limits l;
  l.steps = 200'000;
  l.memory = size_t{32} << 20;
  l.output = size_t{1} << 20;
  return l;
}

// A chat from bytes: messages are cut at "\x02"; lengths choose roles and tool calls.
OrderedJson chat(std::string_view data) {
  OrderedJson messages = OrderedJson::array();
  static constexpr const char* kRoles[] = {"user", "assistant", "system", "tool"};
  size_t n = 0;
  for (std::string_view part : split(data, '\x02')) {
    if (n > 6) break;
    OrderedJson m;
    m["role"] = kRoles[n++ % 2 + (part.size() % 7 == 0 ? 2 : 0)];
    m["content"] = replace_invalid_utf8(part);
    if (part.size() % 5 == 4) {
      OrderedJson call;
      call["type"] = "function";
      call["function"]["name"] = "f";
      call["function"]["arguments"]["x"] = replace_invalid_utf8(part.substr(0, 8));
      m["tool_calls"].push_back(call);
    }
    messages.push_back(m);
  }
  return messages;
}

void run(std::string_view source, std::string_view data) {
  const auto t =
      ChatTemplate::compile(source, "fuzz", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, {"<|end|>"}, small());
  const OrderedJson messages = chat(data);
  OrderedJson tools = OrderedJson::array();
  tools.push_back({{"type", "function"}, {"function", {{"name", "f"}, {"parameters", OrderedJson::object()}}}});
  ChatInput in;
  in.messages = &messages;
  in.now = 0;
  if (data.size() % 3 == 0) in.tools = &tools;
  in.add_generation_prompt = data.size() % 2 == 0;
  const RenderedChat r = t->render(in);
  require(is_valid_utf8(r.text));
  check_spans(r.plain, r.text.size());
  check_spans(r.assistant, r.text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  try {
    run(input.substr(0, cut), input.substr(std::min(cut + 1, input.size())));
  } catch (const mxt::Error&) {
  }
  return 0;
}
