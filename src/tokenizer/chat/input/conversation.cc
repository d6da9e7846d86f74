#include "tokenizer/chat/input/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tokenizer/chat/input/calculations.h"

namespace mxt::tokenizer {
namespace {

void drop_nulls(OrderedJson& object) {
  for (auto it = object.begin(); it != object.end();) it = it->is_null() ? object.erase(it) : std::next(it);
}

const OrderedJson* member(const OrderedJson& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// JSON text, with the place in its error.
OrderedJson parse_at(const std::string& text, const std::string& at, const char* what) {
  try {
    return parse_ordered_json(text, what);
  } catch (const Error& e) {
    throw BadChat(at, std::string(": ") + e.what());
  }
}

void check_arguments(OrderedJson& function, const std::string& at) {
  const auto it = function.find("arguments");
  if (it == function.end()) {
    function["arguments"] = OrderedJson::object();
    return;
  }
  if (it->is_string()) {
    const auto& text = it->get_ref<const std::string&>();
    if (trim(text).empty())
      *it = OrderedJson::object();
    else if (!parse_at(text, at, "arguments").is_object())
      throw BadChat(at, ": arguments given as text must hold a JSON object");
  } else if (!it->is_object()) {
    throw BadChat(at, ": arguments must be an object, or one as JSON text");
  }
}

void normalize_call(OrderedJson& call, const std::string& at) {
  if (!call.is_object()) throw BadChat(at, " must be {\"function\": {\"name\": …, \"arguments\": …}}");
  drop_nulls(call);
  if (!call.contains("function")) {
    // Its id stays outside.
    OrderedJson id = call.contains("id") ? call["id"] : OrderedJson();
    call.erase("id");
    call = with_envelope(std::move(call));
    if (!id.is_null()) call["id"] = std::move(id);
  }
  const auto f = call.find("function");
  if (f == call.end() || !f->is_object()) throw BadChat(at, " must be {\"function\": {\"name\": …, \"arguments\": …}}");
  drop_nulls(*f);
  if (!f->contains("name") || !(*f)["name"].is_string())
    throw BadChat(at, " must be {\"function\": {\"name\": …, \"arguments\": …}}, the name a text");
  check_arguments(*f, at);
}

// OpenAI's way before tools: one call beside the content, and its result as a message of the role "function".
void take_older_call(OrderedJson& message, const std::string& at) {
  if (const OrderedJson* role = member(message, "role"); role && *role == "function") message["role"] = "tool";
  const auto old = message.find("function_call");
  if (old == message.end()) return;
  if (message.contains("tool_calls")) throw BadChat(at, ": a message has both function_call and tool_calls");
  OrderedJson call = std::move(*old);
  message.erase("function_call");
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string())
    throw BadChat(at, ": function_call must be {\"name\": …, \"arguments\": …}");
  message["tool_calls"] = OrderedJson::array({OrderedJson{{"type", "function"}, {"function", std::move(call)}}});
}

// OpenAI's newer interface calls texts by who says them.
bool is_text_part(const OrderedJson* type) {
  return type && (*type == "text" || *type == "input_text" || *type == "output_text");
}

// Parts of other makers' forms, and where here the same is said.
std::string_view said_elsewhere(const std::string& type) {
  if (type == "thinking" || type == "reasoning") return "the message's \"reasoning_content\" says it here";
  if (type == "tool_use") return "calls are the message's \"tool_calls\" here";
  if (type == "tool_result") return "results are messages of the role \"tool\" here";
  return "";
}

void join_parts(OrderedJson& content, const std::string& at) {
  std::string all;
  for (const OrderedJson& part : content) {
    const OrderedJson* type = member(part, "type");
    if (!type || !type->is_string())
      throw BadChat(at, ": a part of \"content\" is an object with a type: {\"type\": \"text\", \"text\": …}");
    const bool text = is_text_part(type);
    if (!text && *type != "refusal") {
      const auto name = type->get<std::string>();
      if (const auto elsewhere = said_elsewhere(name); !elsewhere.empty())
        throw BadChat(at, fmt::format(" holds a part of type \"{}\": {}", name, elsewhere));
      throw BadChat(at, fmt::format(" holds a part of type \"{}\"; this build reads text only, remove such rows", name),
                    Exit::kMissing);
    }
    const OrderedJson* said = member(part, text ? "text" : "refusal");
    if (!said || !said->is_string())
      throw BadChat(
          at, fmt::format(": a part of type {} holds a \"{}\"", type->get<std::string>(), text ? "text" : "refusal"));
    all += said->get_ref<const std::string&>();
  }
  content = std::move(all);
}

// Parts with calculations among them stay parts, {"type", "text"} each.
void check_calculations(OrderedJson& content, const OrderedJson* role, const std::string& at) {
  if (!role || *role != "assistant") throw BadChat(at, ": only the assistant calculates (parts of type python)");
  for (OrderedJson& part : content) {
    const OrderedJson* type = member(part, "type");
    const OrderedJson* text = member(part, "text");
    if (!type || (*type != "text" && *type != "python" && *type != "python_output") || !text || !text->is_string())
      throw BadChat(at,
                    ": beside calculations a part is {\"type\": \"text\", \"python\" or \"python_output\", "
                    "\"text\": …}");
    part = OrderedJson{{"type", *type}, {"text", *text}};
  }
}

// What the model said in place of an answer: OpenAI's form has it outside the content.
void take_refusal(OrderedJson& message, const std::string& at) {
  const auto refusal = message.find("refusal");
  if (refusal == message.end()) return;
  if (!refusal->is_string()) throw BadChat(at, ": \"refusal\" must be a text");
  const auto says = [&](const char* key) {
    const OrderedJson* v = member(message, key);
    return v && *v != "" && *v != OrderedJson::array();
  };
  if (*refusal == "" || says("content") || says("tool_calls")) return;
  if (const OrderedJson* role = member(message, "role"); !role || *role != "assistant") return;
  OrderedJson said = std::move(*refusal);
  message.erase(refusal);
  message["content"] = std::move(said);
}

// It goes by three names, of which a template is given one: two that differ would lose one unsaid.
void check_reasoning(OrderedJson& message, const std::string& at) {
  std::string said;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const OrderedJson* v = member(message, key);
    if (!v || *v == "") continue;
    if (!said.empty() && *v != message[said])
      throw BadChat(at, fmt::format(": a message has \"{}\" and another \"{}\": leave one of them out", said, key));
    if (said.empty()) said = key;
  }
  for (const char* key : {"reasoning_content", "thinking", "reasoning"})
    if (const auto it = message.find(key); !said.empty() && it != message.end() && *it == "") message.erase(it);
}

void normalize_message(OrderedJson& message, const std::string& at) {
  if (!message.is_object()) throw BadChat(at, " must be an object with \"role\" and \"content\"");
  const bool no_content = message.contains("content") && message["content"].is_null() &&
                          !member(message, "tool_calls") && !member(message, "function_call");
  drop_nulls(message);
  if (const OrderedJson* calls = member(message, "tool_calls");
      calls && calls->is_string() && trim(calls->get_ref<const std::string&>()).empty())
    message.erase("tool_calls");
  if (no_content) message["content"] = nullptr;
  take_older_call(message, at);
  take_refusal(message, at);
  check_reasoning(message, at);
  if (const auto calls = message.find("tool_calls"); calls != message.end()) {
    if (calls->is_string()) *calls = parse_at(calls->get<std::string>(), at, "tool_calls");  // as in flat tables
    if (!calls->is_array()) throw BadChat(at, ": \"tool_calls\" must be an array");
    for (size_t k = 0; k < calls->size(); ++k) normalize_call((*calls)[k], fmt::format("{}.tool_calls[{}]", at, k));
  }
  if (const auto content = message.find("content"); content != message.end() && content->is_array())
    has_calculations(*content) ? check_calculations(*content, member(message, "role"), at) : join_parts(*content, at);
}

}  // namespace

OrderedJson with_envelope(OrderedJson tool) {
  if (!tool.is_object() || tool.contains("function") || !tool.contains("name") || !tool["name"].is_string())
    return tool;
  if (const OrderedJson* type = member(tool, "type")) {
    if (*type != "function") return tool;
    tool.erase("type");
  }
  return OrderedJson{{"type", "function"}, {"function", std::move(tool)}};
}

OrderedJson normalize_messages(OrderedJson messages, std::string_view name) {
  if (!messages.is_array()) throw BadChat(std::string(name), " must be an array of messages");
  for (size_t i = 0; i < messages.size(); ++i) normalize_message(messages[i], fmt::format("{}[{}]", name, i));
  return messages;
}

OrderedJson picture_part(const OrderedJson& part, std::string_view mark) {
  OrderedJson out{{"type", "text"}, {"text", std::string(mark)}};
  const OrderedJson* source = nullptr;
  for (const char* key : {"image", "image_url", "url", "path"})
    if (source == nullptr) source = member(part, key);
  for (const auto& [key, value] : part.items()) {
    if (key == "type" || value.is_null()) continue;
    if (&value != source) {
      out[key == "text" ? part["type"].get<std::string>() + ".text" : key] = value;
      continue;
    }
    if (!value.is_object()) continue;
    for (const auto& [inner, v] : value.items()) {
      const bool as_always = inner == "url" || inner == "path" || (inner == "detail" && v == "auto");
      if (!as_always) out[key + "." + inner] = v;
    }
  }
  return out;
}

std::vector<std::pair<std::string, size_t>> unused_part_members(const OrderedJson& messages) {
  std::vector<std::pair<std::string, size_t>> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson* content = member(messages[i], "content");
    if (!content || !content->is_array()) continue;
    for (const OrderedJson& part : *content) {
      if (!part.is_object()) continue;
      for (const auto& [key, value] : part.items()) {
        const bool says = !value.is_null() && !(value.is_structured() && value.empty());
        const auto same = [&](const auto& other) { return other.first == key; };
        if (key != "type" && key != "text" && key != "refusal" && says && std::none_of(out.begin(), out.end(), same))
          out.emplace_back(key, i);
      }
    }
  }
  return out;
}

OrderedJson normalize_tools(OrderedJson tools, std::string_view name) {
  if (tools.is_string()) tools = parse_at(std::string(tools.get_ref<const std::string&>()), std::string(name), "tools");
  if (!tools.is_array()) throw BadChat(std::string(name), " must be an array of tools");
  for (size_t i = 0; i < tools.size(); ++i) {
    OrderedJson& tool = tools[i];
    const std::string at = fmt::format("{}[{}]", name, i);
    if (tool.is_string()) tool = parse_at(std::string(tool.get_ref<const std::string&>()), at, "a tool");
    if (!tool.is_object()) throw BadChat(at, " must be an object: {\"type\": \"function\", \"function\": {…}}");
    tool = with_envelope(std::move(tool));
    const auto f = tool.find("function");
    if (f == tool.end() || !f->is_object()) continue;
    const auto p = f->find("parameters");
    if (p == f->end() || !p->is_string()) continue;
    const std::string text = p->get<std::string>();
    if (trim(text).empty())
      f->erase("parameters");
    else
      *p = parse_at(text, at, "parameters");
    if (f->contains("parameters") && !(*f)["parameters"].is_object())
      throw BadChat(at, ": parameters given as text must hold a JSON schema");
  }
  return tools;
}

}  // namespace mxt::tokenizer
