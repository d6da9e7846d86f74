#include "infer/end_of_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/chat/nanochat.h"

namespace mxt::infer {
namespace {

const OrderedJson& tools() {
  static const OrderedJson kTools = OrderedJson::parse(
      R"([{"type":"function","function":{"name":"look","description":"","parameters":{"type":"object","properties":{}}}}])");
  return kTools;
}

// The token that ends the last assistant turn of `messages`; −1 where the template does not take them or ends a turn
// with something else than one added token.
int32_t last_of(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat, const char* messages,
                const OrderedJson* with) {
  const OrderedJson list = OrderedJson::parse(messages);
  tokenizer::ChatInput in;
  in.messages = &list;
  in.tools = with;
  in.now = 0;
  try {
    const tokenizer::RenderedChat r = chat.render(in);
    if (r.assistant.empty()) return -1;
    std::vector<tokenizer::Span> offsets;
    const auto ids = tok.encode_with_offsets(r.text, r.plain, offsets);
    for (size_t i = ids.size(); i-- > 0;)
      if (offsets[i].end <= r.assistant.back().end && offsets[i].end > offsets[i].begin)
        return offsets[i].begin >= r.assistant.back().begin && tok.is_added(ids[i]) ? ids[i] : -1;
  } catch (const Error&) {  // refused, or no turn that could be located: nothing is trained on such a turn either
  }
  return -1;
}

}  // namespace

std::vector<int32_t> end_of_turn(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate* chat,
                                 const formats::ModelConfig& config) {
  std::vector<int32_t> ends;
  auto add = [&](int64_t id) {
    if (id >= 0 && id < config.vocab_size && std::find(ends.begin(), ends.end(), id) == ends.end())
      ends.push_back(static_cast<int32_t>(id));
  };
  add(tok.eos());
  for (int64_t id : config.eos) add(id);
  for (int64_t id : config.end_of_turn) add(id);
  // nanochat's answers also end where it would begin another document.
  if (tok.id_of(tokenizer::kPythonStart) >= 0 && tok.id_of(tokenizer::kOutputStart) >= 0) add(tok.bos());
  if (!chat) return ends;
  add(last_of(tok, *chat, R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])", nullptr));
  add(last_of(
      tok, *chat,
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"call00000","function":{"name":"look","arguments":{}}}]}])",
      &tools()));
  return ends;
}

}  // namespace mxt::infer
