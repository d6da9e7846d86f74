#include "tokenizer/chat/chat_template.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tokenizer/chat/input/conversation.h"
#include "tokenizer/chat/input/forms.h"
#include "tokenizer/chat/render/assistant_spans.h"
#include "tokenizer/chat/render/chat_run.h"
#include "tokenizer/chat/render/dropped_fields.h"
#include "tokenizer/chat/render/open_turn.h"

namespace mxt::tokenizer {

struct ChatTemplate::Lazy {
  std::once_flag once;
  Forms forms;
};

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

size_t begin_of(const ChatRun& run, const jinja::Rendered& r, int32_t message) {
  size_t begin = 0;
  for (const jinja::Run& piece : r.runs) {
    const Origin& o = run.origin(piece.tag.origin);
    if (o.message == message && o.part == Origin::Part::kField) return begin;
    begin = piece.end;
  }
  return begin;
}

bool is_part_of_call(Origin::Part p) {
  return p == Origin::Part::kCallName || p == Origin::Part::kCallArguments || p == Origin::Part::kCallOther;
}

// Within trained turns that have a call: names and arguments by where they came from, the rest that is no content of
// the message is the call's form.
std::vector<CallSpan> call_spans(const ChatRun& run, const jinja::Rendered& r, const std::vector<Span>& trained) {
  std::vector<CallSpan> out;
  size_t piece = 0;
  for (const Span& turn : trained) {
    std::vector<CallSpan> here;
    bool calls = false;
    while (piece > 0 && r.runs[piece - 1].end > turn.begin) --piece;
    while (piece < r.runs.size() && r.runs[piece].end <= turn.begin) ++piece;
    for (size_t at = turn.begin; piece < r.runs.size() && at < turn.end; ++piece) {
      const size_t end = std::min<size_t>(r.runs[piece].end, turn.end);
      const Origin& o = run.origin(r.runs[piece].tag.origin);
      calls = calls || is_part_of_call(o.part);
      const CallPart part = o.part == Origin::Part::kCallName        ? CallPart::kName
                            : o.part == Origin::Part::kCallArguments ? CallPart::kArguments
                                                                     : CallPart::kStructure;
      if (o.part != Origin::Part::kField && end > at) here.push_back({{at, end}, part});
      at = end;
      if (r.runs[piece].end > turn.end) break;
    }
    if (calls) out.insert(out.end(), here.begin(), here.end());
  }
  return out;
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
  t->forms_ = std::make_shared<Lazy>();
  return t;
}

std::shared_ptr<const ChatTemplate> ChatTemplate::with_tools(std::shared_ptr<const ChatTemplate> tools) const {
  std::shared_ptr<ChatTemplate> t(new ChatTemplate(*this));
  t->tools_ = std::move(tools);
  return t;
}

RenderedChat ChatTemplate::render_in_form(const ChatInput& given, bool train) const {
  ChatInput input = given;
  if (!input.messages) fail_input("{}: messages must be an array", name());
  OrderedJson messages = normalize_messages(*input.messages), tools;
  if (input.tools && !input.tools->is_null()) tools = normalize_tools(*input.tools);
  LossFlags flags = take_loss_flags(messages);
  std::call_once(forms_->once, [this] { forms_->forms = find_forms(*this); });
  put_in_form(forms_->forms, *this, messages, tools);
  const bool open = !train && input.continue_final_message;
  const std::string said = open ? mark_open_turn(messages, name()) : "";
  input.messages = &messages;
  input.tools = tools.is_null() ? nullptr : &tools;
  ChatRun run(*this, input, limits_);
  jinja::Rendered r = run.render(run.whole());
  check_dropped_fields(run, r);
  RenderedChat chat;
  if (train) {
    for (size_t i = 0; i < std::min(input.trained_from, flags.trained.size()); ++i) flags.trained[i] = false;
    chat.assistant = assistant_spans(run, r, flags.trained);
    chat.not_taken = std::move(flags.not_taken);
    chat.calls = call_spans(run, r, chat.assistant);
  }
  chat.left_out = left_out_contents(run, r);
  chat.unread = unread_members(run, r);
  chat.left_out_thoughts = left_out_thoughts(run, r);
  if (train) std::erase_if(chat.left_out_thoughts, [&](size_t i) { return !flags.trained[i]; });
  chat.plain = plain_spans(run, r);
  chat.last_message = begin_of(run, r, static_cast<int32_t>(messages.size()) - 1);
  chat.text = std::move(r.text);
  if (open) cut_open_turn(chat, said, name());
  return chat;
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  if (tools_ && input.tools && !input.tools->is_null()) return tools_->render(input);
  return render_in_form(input, true);
}

RenderedChat ChatTemplate::render_prompt(const ChatInput& input) const {
  if (tools_ && input.tools && !input.tools->is_null()) return tools_->render_prompt(input);
  return render_in_form(input, false);
}

}  // namespace mxt::tokenizer
