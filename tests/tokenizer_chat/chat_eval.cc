// Renders templates for tools/jinja_differential.py, which compares the answers with transformers' own.
// Request: {"template": …, "vars": {…}} or {"template": …, "messages": […], "tools": …, "add_generation_prompt": …,
// "continue_final_message": …, "chat_template_kwargs": {…}, "special_tokens": {…}}. Answer: {"text": …, "assistant": …,
// "plain": …} or {"error": …}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/chat/chat_template.h"

namespace mxt::tokenizer {
namespace {

OrderedJson pairs(const std::vector<Span>& spans) {
  OrderedJson out = OrderedJson::array();
  for (const Span& s : spans) out.push_back({s.begin, s.end});
  return out;
}

OrderedJson answer(const OrderedJson& q) {
  const auto source = q.at("template").get<std::string>();
  const int64_t now = q.value("now", int64_t{0});
  if (q.contains("vars")) return {{"text", jinja::render(*jinja::Template::compile(source, "t"), q["vars"], {}, now)}};
  const auto t = ChatTemplate::compile(source, "t", q.value("special_tokens", std::map<std::string, std::string>{}));
  ChatInput in;
  in.messages = &q.at("messages");
  if (q.contains("tools")) in.tools = &q["tools"];
  if (q.contains("chat_template_kwargs")) in.kwargs = &q["chat_template_kwargs"];
  in.add_generation_prompt = q.value("add_generation_prompt", false);
  in.continue_final_message = q.value("continue_final_message", false);
  in.now = now;
  const RenderedChat chat = q.value("prompt_only", false) ? t->render_prompt(in) : t->render(in);
  return {{"text", chat.text}, {"assistant", pairs(chat.assistant)}, {"plain", pairs(chat.plain)}};
}

}  // namespace
}  // namespace mxt::tokenizer

int main() {
  using namespace mxt;
  for (std::string line; std::getline(std::cin, line);) {
    OrderedJson out;
    try {
      out = tokenizer::answer(parse_ordered_json(line, "request"));
    } catch (const jinja::TemplateRefused& e) {
      out = {{"error", e.what()}, {"kind", "refused"}};
    } catch (const jinja::TemplateLimit& e) {
      out = {{"error", e.what()}, {"kind", "limit"}};
    } catch (const jinja::TemplateError& e) {
      out = {{"error", e.what()}, {"kind", "template"}};
    } catch (const tokenizer::FieldDropped& e) {
      out = {{"error", e.what()}, {"kind", "dropped"}};
    } catch (const tokenizer::TurnNotLocated& e) {
      out = {{"error", e.what()}, {"kind", "turn"}};
    } catch (const std::exception& e) {
      out = {{"error", e.what()}, {"kind", "other"}};
    }
    std::cout << out.dump() << "\n" << std::flush;
  }
}
