#include "tokenizer/chat/chat_template.h"

#include <nlohmann/json.hpp>

#include "tokenizer/chat/render/assistant_spans.h"
#include "tokenizer/chat/render/chat_run.h"
#include "tokenizer/chat/render/dropped_fields.h"

namespace mxt::tokenizer {
namespace {

std::vector<Span> plain_spans(const ChatRun& run, const jinja::Rendered& r) {
  std::vector<Span> spans;
  size_t begin = 0;
  for (const jinja::Run& piece : r.runs) {
    if (run.origin(piece.tag.origin).plain) {
      if (!spans.empty() && spans.back().end == begin)
        spans.back().end = piece.end;
      else
        spans.push_back({begin, piece.end});
    }
    begin = piece.end;
  }
  return spans;
}

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view name,
                                                          const std::map<std::string, std::string>& special_tokens,
                                                          const std::vector<std::string>& control_tokens,
                                                          const jinja::Limits& limits) {
  std::shared_ptr<ChatTemplate> t(new ChatTemplate);
  t->template_ = jinja::Template::compile(source, name);
  t->special_tokens_ = special_tokens;
  t->control_tokens_ = control_tokens;
  t->limits_ = limits;
  return t;
}

std::shared_ptr<const ChatTemplate> ChatTemplate::with_tools(std::shared_ptr<const ChatTemplate> tools) const {
  std::shared_ptr<ChatTemplate> t(new ChatTemplate(*this));
  t->tools_ = std::move(tools);
  return t;
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  if (tools_ && input.tools && !input.tools->is_null()) return tools_->render(input);
  ChatRun run(*this, input);
  jinja::Rendered r = run.render(run.whole());
  check_dropped_fields(run, r);
  RenderedChat chat;
  chat.assistant = assistant_spans(run, r, input.trained_from);
  chat.left_out = left_out_contents(run, r);
  chat.plain = plain_spans(run, r);
  chat.text = std::move(r.text);
  return chat;
}

RenderedChat ChatTemplate::render_prompt(const ChatInput& input) const {
  if (tools_ && input.tools && !input.tools->is_null()) return tools_->render_prompt(input);
  ChatRun run(*this, input);
  jinja::Rendered r = run.render(run.whole());
  check_dropped_fields(run, r);
  RenderedChat chat;
  chat.plain = plain_spans(run, r);
  chat.text = std::move(r.text);
  return chat;
}

}  // namespace mxt::tokenizer
