// A chat request's messages and tools, checked and rendered. Pictures come as data URIs: nothing is ever fetched for a
// client.
#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/operator_state.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxMessages = 4096, kMaxTools = 128, kMaxPictures = 64;

// What a text model cannot read is named; the rest is checked where all who render chats have it checked.
void check_content(const OrderedJson& content, const ServedModel& served, const std::string& at) {
  if (content.is_string()) return;
  if (!content.is_array()) refuse(at, "{} must be a text or a list of parts", at);
  for (const auto& part : content) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      refuse(at, "{}: a part is an object with a type", at);
    const auto& type = part["type"].get_ref<const std::string&>();
    if (type == "image_url" && served.show) continue;
    if (type == "image_url" || type == "input_audio" || type == "video_url" || type == "file")
      refuse(at, "{}: parts of type \"{}\" are not supported: this model reads text{}", at, type,
             type == "image_url" ? served.picture_remedy : "");
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal" && type != "python" &&
        type != "python_output")
      refuse(at, "{}: parts of type \"{}\" are not known", at, type.substr(0, 60));
  }
}

bool is_name(const std::string& s) {
  if (s.empty() || s.size() > 128) return false;
  for (char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
          c == '.'))
      return false;
  return true;
}

// Those of OpenAI, and one that the template itself speaks of (Granite's "document_role" and the like).
void check_role(const std::string& role, const tokenizer::ChatTemplate& chat, const std::string& at) {
  for (const char* known : {"system", "developer", "user", "assistant", "tool", "function"})
    if (role == known) return;
  if (!is_name(role) || !(chat.jinja().has_text("'" + role + "'") || chat.jinja().has_text('"' + role + '"')))
    refuse(at + ".role",
           "{}.role must be system, developer, user, assistant or tool, or one that the chat template names", at);
}

void check_message(const OrderedJson& m, const ServedModel& served, const std::string& at) {
  const tokenizer::ChatTemplate& chat = *served.chat;
  if (!m.is_object()) refuse(at, "{} must be an object", at);
  const Fields f(m, at + ".");
  f.only({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking",
          "refusal", "audio", "annotations", "function_call"});
  const std::string role = f.text("role");
  check_role(role, chat, at);
  for (const char* text : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking", "refusal"})
    f.text(text);
  const bool speaks = f.has("tool_calls") || f.has("function_call") || !f.text("refusal").empty();
  if (f.has("content"))
    check_content(*f.get("content"), served, at + ".content");
  else if (role != "assistant" || !speaks)
    refuse(at + ".content", "{}.content is missing", at);
  for (const char* name : {"tool_calls", "function_call"})
    if (f.has(name) && role != "assistant") refuse(at + "." + name, "{}.{}: only the assistant calls tools", at, name);
  if (const OrderedJson* list = f.get("tool_calls"); list && (!list->is_array() || list->size() > kMaxTools))
    refuse(at + ".tool_calls", "{}.tool_calls must be a list of at most {} calls", at, kMaxTools);
}

// Pictures become marks in the text; their data URIs go to `uris`.
void take_pictures(OrderedJson& message, const std::string& mark, std::vector<std::string>& uris,
                   const std::string& at) {
  const auto content = message.find("content");
  if (content == message.end()) return;
  const auto check_text = [&](const OrderedJson& text) {
    if (text.is_string() && text.get_ref<const std::string&>().find(mark) != std::string::npos)
      refuse(at, "{}: a text holds U+E0F1, which stands for pictures here", at);
  };
  check_text(*content);
  if (!content->is_array()) return;
  for (OrderedJson& part : *content) {
    if (part.contains("text")) check_text(part["text"]);
    if (part["type"] != "image_url") continue;
    const auto url = part.find("image_url");
    const OrderedJson* text = url == part.end()                          ? nullptr
                              : url->is_object() && url->contains("url") ? &(*url)["url"]
                                                                         : &*url;
    if (text == nullptr || !text->is_string())
      refuse(at, "{}: a part of type image_url has an image_url with a url", at);
    const auto& uri = text->get_ref<const std::string&>();
    if (!uri.starts_with("data:"))
      refuse(at, "{}: pictures are not fetched: send a data URI (data:image/png;base64,…)", at);
    if (uris.size() == kMaxPictures) refuse(at, "more than {} pictures", kMaxPictures);
    uris.push_back(uri);
    part = tokenizer::picture_part(part, mark);
  }
}

// What of a request's messages the answer does not depend on: once for each, so that a client's habit fills no log.
void say_unused(const std::string& model, const std::string& what) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard lock(mutex);
  if (said.size() < 64 && said.insert(model + " " + what).second) log::warn("{}: the chat template {}", model, what);
}

// What is common to all who render chats is tokenizer/chat/input's: spellings of calls, tools, parts.
OrderedJson messages_of(const OrderedJson& list, const ServedModel& served, std::vector<std::string>& uris) {
  if (!list.is_array() || list.empty()) refuse("messages", "messages must be a list with at least one message");
  if (list.size() > kMaxMessages) refuse("messages", "more than {} messages", kMaxMessages);
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < list.size(); ++i) {
    check_message(list[i], served, fmt::format("messages[{}]", i));
    out.push_back(list[i]);
    if (served.show) take_pictures(out.back(), served.picture_mark, uris, fmt::format("messages[{}].content", i));
  }
  for (const auto& [name, i] : tokenizer::unused_part_members(out))
    say_unused(served.names.at(0).first, fmt::format("does not see \"{}\" of a content's parts: it is not used", name));
  try {
    out = tokenizer::normalize_messages(std::move(out));
  } catch (const tokenizer::BadChat& e) {
    refuse(e.at(), "{}", e.what());
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].contains("tool_calls"))
      for (const auto& call : out[i]["tool_calls"])
        if (const auto& name = call["function"]["name"].get_ref<const std::string&>(); name.empty())
          refuse(fmt::format("messages[{}].tool_calls", i), "messages[{}].tool_calls: a call's function has a name", i);
  return out;
}

// Of a schema's "type", one or a list of which others can never be arguments (["object", "null"]).
bool names_object(const OrderedJson& type) {
  return type == "object" || (type.is_array() && std::find(type.begin(), type.end(), "object") != type.end());
}

void check_parameters(const OrderedJson& p, const std::string& where) {
  if (!p.is_object()) refuse(where, "{} must be a JSON schema", where);
  if (p.contains("type") && !names_object(p["type"])) refuse(where, "{}: a function's parameters are an object", where);
  if (p.contains("properties") && !p["properties"].is_object()) refuse(where, "{}.properties must be an object", where);
  if (p.contains("properties"))
    for (const auto& [name, q] : p["properties"].items())
      if (!q.is_object() && !q.is_boolean()) refuse(where, "{}.properties.{} must be a schema", where, name);
  if (p.contains("required") && !p["required"].is_array()) refuse(where, "{}.required must be a list", where);
}

OrderedJson tools_of(const OrderedJson& given) {
  OrderedJson list;
  try {
    list = tokenizer::normalize_tools(given);
  } catch (const tokenizer::BadChat& e) {
    refuse(e.at(), "{}", e.what());
  }
  if (list.size() > kMaxTools) refuse("tools", "tools must be a list of at most {} tools", kMaxTools);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    const auto& t = list[i];
    if (!t.is_object() || !t.contains("type") || t["type"] != "function" || !t.contains("function") ||
        !t["function"].is_object())
      refuse(at, "{} must be {{\"type\":\"function\",\"function\":{{…}}}}", at);
    const Fields f(t["function"], at + ".function.");
    if (!is_name(f.text("name")))
      refuse(at + ".function.name", "{}.function.name must have 1 to 128 letters, digits, _, - or .", at);
    f.text("description");
    f.flag("strict", false);
    if (const OrderedJson* p = f.get("parameters")) check_parameters(*p, at + ".function.parameters");
  }
  return list;
}

void say_unused(const std::string& model, const tokenizer::RenderedChat& r, const OrderedJson& messages) {
  for (const auto& [member, i] : r.unread)
    say_unused(model, fmt::format("does not read \"{}\" of messages: it is not used", member));
  if (!r.left_out_thoughts.empty())
    say_unused(model, "leaves out the reasoning of earlier turns of the assistant's: it is not used");
  for (const size_t i : r.left_out) {
    const auto& m = messages[i];
    say_unused(model, fmt::format("leaves out the content of messages of the role {}{}: it is not used",
                                  m["role"].get<std::string>(), m.contains("tool_calls") ? " beside tool calls" : ""));
  }
}

}  // namespace

OrderedJson read_tools(const Fields& f) {
  OrderedJson tools;
  if (f.has("tools")) tools = tools_of(*f.get("tools"));
  return tools.empty() ? OrderedJson() : tools;
}

ChatPrompt render_chat(const OperatorState& s, const Fields& f, OrderedJson tools) {
  if (!s.served.chat) refuse("messages", "this model has no chat template: use /v1/completions");
  if (f.has("chat_template")) refuse("chat_template", "a request's own chat template is not accepted");
  if (!f.has("messages")) refuse("messages", "messages is missing");
  std::vector<std::string> uris;
  const OrderedJson messages = messages_of(*f.get("messages"), s.served, uris);
  ChatPrompt p;
  p.tools = std::move(tools);
  OrderedJson kwargs = OrderedJson::object();
  if (const OrderedJson* k = f.get("chat_template_kwargs")) {
    if (!k->is_object()) refuse("chat_template_kwargs", "chat_template_kwargs must be an object");
    // What the template is called with otherwise stays ours.
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
                             "chat_template", "tokenize", "return_dict", "template"})
      if (k->contains(name)) refuse("chat_template_kwargs", "chat_template_kwargs may not set {}", name);
    kwargs = *k;
    for (const auto& [name, value] : kwargs.items())
      if (!s.served.chat->jinja().reads(name) && s.served.chat_source.find(name) == std::string::npos)
        say_unused(s.served.names.at(0).first,
                   fmt::format("does not read chat_template_kwargs.{}: it is not used", name));
  }
  const std::string effort = f.text("reasoning_effort", "medium");
  bool known = false;
  for (const char* level : {"none", "minimal", "low", "medium", "high", "xhigh"}) known = known || effort == level;
  if (!known) refuse("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh");
  if (effort == "none" && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = false;
  if (f.has("reasoning_effort") && !kwargs.contains("reasoning_effort") &&
      s.served.chat_source.find("reasoning_effort") != std::string::npos)
    kwargs["reasoning_effort"] = effort;
  tokenizer::ChatInput in;
  in.messages = &messages;
  in.tools = p.tools.is_null() ? nullptr : &p.tools;
  in.continue_final_message = f.flag("continue_final_message", false);
  in.add_generation_prompt = f.flag("add_generation_prompt", !in.continue_final_message);
  if (in.continue_final_message && in.add_generation_prompt)
    refuse("continue_final_message",
           "continue_final_message goes on with the last message, add_generation_prompt begins another: one of them "
           "may be true");
  in.kwargs = kwargs.empty() ? nullptr : &kwargs;
  size_t begun = std::string::npos;  // what of the text is the answer that is gone on with
  try {
    const auto r = s.served.chat->render_prompt(in);
    say_unused(s.served.names.at(0).first, r, messages);
    p.text = r.text;
    if (in.continue_final_message) begun = r.last_message;
    if (uris.empty()) {
      p.ids = s.served.tok->encode(r.text, r.plain);
    } else {
      ShownPrompt seen = s.served.show(r.text, r.plain, uris);
      p.ids = std::move(seen.ids);
      p.shown = std::move(seen.shown);
    }
  } catch (const Error& e) {
    std::string why = e.what();  // begins with the template's name, which tells where the model lies on this machine
    if (const auto at = why.find(s.served.chat->name()); at != std::string::npos)
      why.replace(at, s.served.chat->name().size(), "the model's chat template");
    const bool dropped = dynamic_cast<const tokenizer::FieldDropped*>(&e);
    if (const auto remedy = why.find(": set data."); dropped && remedy != std::string::npos)
      why.replace(remedy, std::string::npos,
                  ": ask a model whose template has a place for it, or begin the server with --chat-template");
    refuse(dropped && !p.tools.is_null() ? "tools" : "messages", "{}", why);
  }
  begun = std::min(begun, p.text.size());
  const std::string_view whole = p.text, end = trim(whole.substr(0, begun)), said = trim(whole.substr(begun));
  const size_t opens = said.rfind("<think>"), closes = said.rfind("</think>");
  const bool thought = closes != std::string::npos && (opens == std::string::npos || opens < closes);
  p.thinking_opened = !thought && (end.ends_with("<think>") || opens != std::string::npos);
  const bool asked_not_to = (kwargs.contains("enable_thinking") && kwargs["enable_thinking"] == OrderedJson(false)) ||
                            end.ends_with("</think>") || (!said.empty() && !p.thinking_opened);
  const bool can = s.settings.always_thinks || s.served.chat_source.find("enable_thinking") != std::string::npos;
  p.thinking = s.settings.reasoning == ReasoningStyle::kThinkTags && !asked_not_to && (can || p.thinking_opened);
  return p;
}

}  // namespace mxt::serve
