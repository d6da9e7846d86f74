// A chat request's messages and tools, checked and rendered. Text alone: nothing is ever fetched for a client.
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/operator_state.h"
#include "tokenizer/chat/input/conversation.h"

namespace mxt::serve {
namespace {

constexpr size_t kMaxMessages = 4096, kMaxTools = 128;

std::string content_of(const OrderedJson& content, const std::string& at) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse(at, "{} must be a text or a list of parts", at);
  std::string all;
  for (const auto& part : content) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
      refuse(at, "{}: a part is an object with a type", at);
    const auto& type = part["type"].get_ref<const std::string&>();
    if (type == "image_url" || type == "input_audio" || type == "video_url" || type == "file")
      refuse(at, "{}: parts of type \"{}\" are not supported: this model reads text", at, type);
    if (type != "text" && type != "refusal") refuse(at, "{}: a part of an unknown type", at);
    if (!part.contains(type) || !part[type].is_string())
      refuse(at, "{}: a part of type {} holds a text of that name", at, type);
    all += part[type].get_ref<const std::string&>();
  }
  return all;
}

bool is_name(const std::string& s) {
  if (s.empty() || s.size() > 128) return false;
  for (char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
          c == '.'))
      return false;
  return true;
}

// What is common to all who render chats is tokenizer/chat/input's: spellings of calls, tools, parts.
OrderedJson tool_calls_of(const OrderedJson& calls, const std::string& at) {
  if (!calls.is_array() || calls.size() > kMaxTools) refuse(at, "{} must be a list of tool calls", at);
  OrderedJson out;
  try {
    const OrderedJson one{{"role", "assistant"}, {"tool_calls", calls}};
    out = tokenizer::normalize_messages(OrderedJson::array({one}))[0]["tool_calls"];
  } catch (const tokenizer::BadChat& e) {
    const std::string_view why = e.what(), inside = "messages[0].tool_calls";
    refuse(at, "{}{}", at, why.substr(std::min(inside.size(), why.size())));
  }
  for (const auto& call : out)
    if (!is_name(call["function"]["name"].get<std::string>())) refuse(at, "{}: a tool call's function has a name", at);
  return out;
}

OrderedJson messages_of(const OrderedJson& list) {
  if (!list.is_array() || list.empty()) refuse("messages", "messages must be a list with at least one message");
  if (list.size() > kMaxMessages) refuse("messages", "more than {} messages", kMaxMessages);
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& m = list[i];
    const std::string at = fmt::format("messages[{}]", i);
    if (!m.is_object()) refuse(at, "{} must be an object", at);
    const Fields f(m, at + ".");
    f.only({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal",
            "audio", "annotations", "function_call"});
    const std::string role = f.text("role");
    if (role != "system" && role != "developer" && role != "user" && role != "assistant" && role != "tool")
      refuse(at + ".role", "{}.role must be system, developer, user, assistant or tool", at);
    OrderedJson one{{"role", role}};
    if (f.has("name")) one["name"] = f.text("name");
    if (f.has("content"))
      one["content"] = content_of(*f.get("content"), at + ".content");
    else if (role != "assistant" || !f.has("tool_calls"))
      refuse(at + ".content", "{}.content is missing", at);
    if (f.has("tool_calls")) {
      if (role != "assistant") refuse(at + ".tool_calls", "{}: only the assistant calls tools", at);
      one["tool_calls"] = tool_calls_of(*f.get("tool_calls"), at + ".tool_calls");
    }
    if (f.has("function_call")) refuse(at + ".function_call", "function_call is the old way: use tool_calls");
    if (role == "tool" && f.has("tool_call_id")) one["tool_call_id"] = f.text("tool_call_id");
    const std::string reasoning = f.text("reasoning_content", f.text("reasoning"));
    if (!reasoning.empty() && role == "assistant") one["reasoning_content"] = reasoning;
    out.push_back(std::move(one));
  }
  return out;
}

OrderedJson tools_of(const OrderedJson& given) {
  if (!given.is_array() || given.size() > kMaxTools)
    refuse("tools", "tools must be a list of at most {} tools", kMaxTools);
  OrderedJson list;
  try {
    list = tokenizer::normalize_tools(given);
  } catch (const tokenizer::BadChat& e) {
    refuse(e.at(), "{}", e.what());
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    const auto& t = list[i];
    if (!t.is_object() || !t.contains("type") || t["type"] != "function" || !t.contains("function") ||
        !t["function"].is_object())
      refuse(at, "{} must be {{\"type\":\"function\",\"function\":{{…}}}}", at);
    const Fields f(t["function"], at + ".function.");
    f.only({"name", "description", "parameters", "strict"});
    if (!is_name(f.text("name")))
      refuse(at + ".function.name", "{}.function.name must have 1 to 128 letters, digits, _, - or .", at);
    f.text("description");
    f.flag("strict", false);
    if (const OrderedJson* p = f.get("parameters")) {
      const std::string where = at + ".function.parameters";
      if (!p->is_object()) refuse(where, "{} must be a JSON schema", where);
      if (p->contains("type") && (*p)["type"] != "object")
        refuse(where, "{}: a function's parameters are an object", where);
      if (p->contains("properties") && !(*p)["properties"].is_object())
        refuse(where, "{}.properties must be an object", where);
      if (p->contains("properties"))
        for (const auto& [name, q] : (*p)["properties"].items())
          if (!q.is_object() && !q.is_boolean()) refuse(where, "{}.properties.{} must be a schema", where, name);
      if (p->contains("required") && !(*p)["required"].is_array()) refuse(where, "{}.required must be a list", where);
    }
  }
  return list;
}

// A member that the template does not read changes no answer: once for each, so that a client's habit fills no log.
void say_unread(const std::string& model, const std::string& member) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard lock(mutex);
  if (said.size() < 64 && said.insert(model + " " + member).second)
    log::warn("{}: the chat template does not read \"{}\" of messages: it is not used", model, member);
}

}  // namespace

ChatPrompt render_chat(const OperatorState& s, const Fields& f, bool offer_tools) {
  if (!s.served.chat) refuse("messages", "this model has no chat template: use /v1/completions");
  if (f.has("chat_template")) refuse("chat_template", "a request's own chat template is not accepted");
  if (!f.has("messages")) refuse("messages", "messages is missing");
  const OrderedJson messages = messages_of(*f.get("messages"));
  ChatPrompt p;
  if (f.has("tools")) {
    OrderedJson tools = tools_of(*f.get("tools"));
    if (offer_tools && !tools.empty()) p.tools = std::move(tools);
  }
  OrderedJson kwargs = OrderedJson::object();
  if (const OrderedJson* k = f.get("chat_template_kwargs")) {
    if (!k->is_object()) refuse("chat_template_kwargs", "chat_template_kwargs must be an object");
    // What the template is called with otherwise stays ours.
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
                             "chat_template", "tokenize", "return_dict", "template"})
      if (k->contains(name)) refuse("chat_template_kwargs", "chat_template_kwargs may not set {}", name);
    kwargs = *k;
  }
  const std::string effort = f.text("reasoning_effort", "medium");
  bool known = false;
  for (const char* level : {"none", "minimal", "low", "medium", "high", "xhigh"}) known = known || effort == level;
  if (!known) refuse("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh");
  if (effort == "none" && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = false;
  tokenizer::ChatInput in;
  in.messages = &messages;
  in.tools = p.tools.is_null() ? nullptr : &p.tools;
  in.add_generation_prompt = f.flag("add_generation_prompt", true);
  in.kwargs = kwargs.empty() ? nullptr : &kwargs;
  try {
    const auto r = s.served.chat->render_prompt(in);
    for (const auto& [member, i] : r.unread) say_unread(s.served.names.at(0).first, member);
    p.text = r.text;
    p.ids = s.served.tok->encode(r.text, r.plain);
  } catch (const Error& e) {
    std::string why = e.what();  // begins with the template's name, which tells where the model lies on this machine
    if (const auto at = why.find(s.served.chat->name()); at != std::string::npos)
      why.replace(at, s.served.chat->name().size(), "the model's chat template");
    refuse(dynamic_cast<const tokenizer::FieldDropped*>(&e) && !p.tools.is_null() ? "tools" : "messages", "{}", why);
  }
  const std::string_view end = trim(p.text);
  p.thinking_opened = end.ends_with("<think>");
  const bool asked_not_to = (kwargs.contains("enable_thinking") && kwargs["enable_thinking"] == OrderedJson(false)) ||
                            end.ends_with("</think>");
  const bool can = s.settings.always_thinks || s.served.chat_source.find("enable_thinking") != std::string::npos;
  p.thinking = s.settings.reasoning == ReasoningStyle::kThinkTags && !asked_not_to && (can || p.thinking_opened);
  return p;
}

}  // namespace mxt::serve
