#include "tokenizer/chat/render/open_turn.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "pytext/unicode.h"

namespace mxt::tokenizer {
namespace {

// Plain letters, which every filter leaves alone. The space at its end tells whether the template trims.
constexpr std::string_view kMark = "THE_MODEL_GOES_ON_FROM_HERE ";
constexpr std::string_view kTrimmed = kMark.substr(0, kMark.size() - 1);

// The text that comes last in a content, or null.
std::string* last_text(OrderedJson& content) {
  if (content.is_string()) return content.get_ptr<std::string*>();
  if (!content.is_array()) return nullptr;
  for (auto part = content.rbegin(); part != content.rend(); ++part)
    if (const auto text = part->is_object() ? part->find("text") : part->end(); text != part->end())
      return text->get_ptr<std::string*>();
  return nullptr;
}

}  // namespace

std::string mark_open_turn(OrderedJson& messages, const std::string& name) {
  if (messages.empty()) fail_input("{}: continue_final_message wants a message to continue", name);
  OrderedJson& last = messages.back();
  const auto content = last.is_object() ? last.find("content") : last.end();
  std::string* text = content == last.end() ? nullptr : last_text(*content);
  if (!text) fail_input("{}: continue_final_message: the last message has no text to continue", name);
  std::string said = *text;
  *text += kMark;
  return said;
}

void cut_open_turn(RenderedChat& chat, const std::string& said, const std::string& name) {
  const size_t from = pytext::skip_space(said, 0), to = pytext::rskip_space(said, said.size());
  const size_t mark = chat.text.rfind(kTrimmed);
  if (mark == std::string::npos || (from < to && chat.text.find(said.substr(from, to - from)) == std::string::npos))
    fail_input("{}: continue_final_message: the template changes the last message's text, so it cannot be continued",
               name);
  const bool trims = chat.text.compare(mark, kMark.size(), kMark) != 0;
  const size_t end = trims ? pytext::rskip_space(std::string_view(chat.text).substr(0, mark), mark) : mark;
  chat.text.resize(end);
  chat.last_message = std::min(chat.last_message, end);
  std::erase_if(chat.plain, [&](const Span& s) { return s.begin >= end; });
  for (Span& s : chat.plain) s.end = std::min(s.end, end);
}

}  // namespace mxt::tokenizer
