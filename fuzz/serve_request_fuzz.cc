// Hostile request bodies and hostile answers: a body is taken or refused with an ApiError; an answer is parsed alike in
// any pieces.
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "serve/operator_state.h"
#include "serve/output/text_stream.h"

namespace {

using namespace mxt;
using namespace mxt::serve;

std::string flat(const ParserSettings& s, std::string_view text, size_t piece) {
  const auto p = make_parser(s);
  TextStream stream({"STOP"});
  Deltas deltas;
  for (size_t i = 0; i < text.size() && !stream.stopped(); i += piece)
    p->push(stream.push(text.substr(i, piece)), deltas);
  p->push(stream.finish(), deltas);
  p->finish(deltas, true);
  std::string content, reasoning, calls;
  for (const Delta& d : deltas) {
    if (d.kind == Delta::Kind::kContent) content += d.text;
    if (d.kind == Delta::Kind::kReasoning) reasoning += d.text;
    if (d.kind == Delta::Kind::kNoReasoning) reasoning.clear();
    if (d.kind == Delta::Kind::kToolBegin) calls += "\n" + d.name + " ";
    if (d.kind == Delta::Kind::kToolArguments) calls += d.text;
  }
  return content + "\x01" + reasoning + "\x01" + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static OperatorState* state = [] {
    auto* s = new OperatorState;
    s->served.tok = tokenizer::Tokenizer::characters(" abcdefghijklmnopqrstuvwxyz{}[]\":,.<>/|0123456789\n");
    s->served.chat_source =
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}\n{% endfor "
        "%}{{ tools | tojson if tools }}";
    s->served.chat = tokenizer::ChatTemplate::compile(s->served.chat_source, "fuzz", {});
    return s;
  }();
  try {
    const OrderedJson body = parse_body(text);
    const Fields f(body);
    if (f.has("prompt")) read_prompts(*f.get("prompt"), "prompt", 64);
    render_chat(*state, f, true);
  } catch (const ApiError& e) {
    if (e.message.empty()) std::abort();
    to_json(e);
  } catch (const Error&) {  // a character that the tokenizer has not
  }
  for (const ToolStyle tools : {ToolStyle::kHermes, ToolStyle::kQwenCoder, ToolStyle::kNone})
    for (const bool thinking : {false, true}) {
      const ParserSettings s{.reasoning = ReasoningStyle::kThinkTags, .starts_thinking = thinking, .tools = tools};
      const std::string whole = flat(s, text, size + 1);
      if (flat(s, text, 1) != whole || flat(s, text, 5) != whole) std::abort();
    }
  return 0;
}
