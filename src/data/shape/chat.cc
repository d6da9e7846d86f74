// Conversations in their several spellings, as OpenAI messages.
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "data/shape/row.h"

namespace mxt::data {
namespace {

// A text member of an object; "" for anything else (what must be a text is checked where it matters).
std::string text_member(const OrderedJson& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

OrderedJson message(const char* role, std::string content) {
  return OrderedJson{{"role", role}, {"content", std::move(content)}};
}

// An array as it stands, or (as in tables, which have no nested columns) its JSON as a text; "" and [] are none.
std::shared_ptr<OrderedJson> read_tools(const RowView& row) {
  const OrderedJson* v = row.find("tools");
  if (!v) return nullptr;
  OrderedJson tools = *v;
  if (v->is_string()) {
    if (trim(v->get_ref<const std::string&>()).empty()) return nullptr;
    tools = parse_ordered_json(v->get_ref<const std::string&>(), row.where() + ": \"tools\"");
  }
  if (!tools.is_array()) row.wrong_type("tools", tools, "an array of tools");
  for (const OrderedJson& t : tools)
    if (!t.is_object()) row.wrong_type("tools", t, "an array of tool objects");
  return tools.empty() ? nullptr : std::make_shared<OrderedJson>(std::move(tools));
}

OrderedJson one_call(const OrderedJson& name, OrderedJson arguments) {
  return OrderedJson::array(
      {OrderedJson{{"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}}});
}

OrderedJson function_call(const std::string& value, const std::string& where) {
  const OrderedJson call = parse_ordered_json(value, where + ": function_call");
  if (!call.is_object() || !call.contains("name") || !call.contains("arguments"))
    fail_input("{}: a function_call must be JSON text {{\"name\": …, \"arguments\": {{…}}}}", where);
  OrderedJson out = message("assistant", "");
  out["tool_calls"] = one_call(call["name"], call["arguments"]);
  return out;
}

OrderedJson sharegpt_turn(const OrderedJson& turn, size_t index, const std::string& where) {
  const auto field = [&](const char* key) -> const std::string& {
    if (!turn.is_object() || !turn.contains(key) || !turn[key].is_string())
      fail_input("{}: conversations[{}] needs \"from\" and \"value\", both texts", where, index);
    return turn[key].get_ref<const std::string&>();
  };
  const std::string &from = field("from"), &value = field("value");
  if (from == "function_call") return function_call(value, where);
  constexpr std::array<std::array<const char*, 2>, 9> kRoles = {{{"human", "user"},
                                                                 {"user", "user"},
                                                                 {"gpt", "assistant"},
                                                                 {"assistant", "assistant"},
                                                                 {"model", "assistant"},
                                                                 {"system", "system"},
                                                                 {"tool", "tool"},
                                                                 {"observation", "tool"},
                                                                 {"function_response", "tool"}}};
  for (const auto& [theirs, role] : kRoles)
    if (from == theirs) return message(role, value);
  fail_input(
      "{}: conversations[{}] is from \"{}\"; known: human, user, gpt, assistant, model, system, tool, observation, "
      "function_response, function_call",
      where, index, from);
}

OrderedJson read_sharegpt(const RowView& row) {
  const OrderedJson& turns = row.need("conversations");
  if (!turns.is_array() || turns.empty()) row.wrong_type("conversations", turns, "an array of {\"from\", \"value\"}");
  OrderedJson messages = OrderedJson::array();
  // Some sets hold OpenAI messages under this name.
  if (turns[0].is_object() && turns[0].contains("role"))
    messages = turns;
  else
    for (const OrderedJson& t : turns) messages.push_back(sharegpt_turn(t, messages.size(), row.where()));
  const std::string system = row.optional_text("system");
  if (!system.empty() && text_member(messages[0], "role") != "system")
    messages.insert(messages.begin(), message("system", system));
  return messages;
}

OrderedJson read_alpaca(const RowView& row) {
  OrderedJson messages = OrderedJson::array();
  if (std::string system = row.optional_text("system"); !system.empty())
    messages.push_back(message("system", std::move(system)));
  const std::string input = row.optional_text("input");
  messages.push_back(
      message("user", input.empty() ? row.text("instruction") : row.text("instruction") + "\n\n" + input));
  messages.push_back(message("assistant", row.text("output")));
  return messages;
}

}  // namespace

void check_messages(const OrderedJson& messages, const std::string& where, std::string_view column) {
  if (messages.empty())
    fail_input("{}: \"{}\" is an empty array; a conversation has at least one message", where, column);
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& m = messages[i];
    if (!m.is_object()) fail_input("{}: {}[{}] must be an object with \"role\" and \"content\"", where, column, i);
    const auto role = m.find("role");
    if (role == m.end() || !role->is_string()) fail_input("{}: {}[{}] has no \"role\" (a text)", where, column, i);
    // Templates know roles as they are written; another spelling is passed over or not trained on, without a word.
    std::string plain(trim(role->get_ref<const std::string&>()));
    for (char& c : plain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    for (const char* known : {"system", "user", "assistant", "tool"})
      if (plain == known && *role != known)
        fail_input("{}: {}[{}]: the role \"{}\" is written \"{}\"", where, column, i, role->get<std::string>(), known);
    if (const auto w = m.find("weight"); w != m.end() && w->is_number() && w->get<double>() != 1)
      fail_missing("{}: {}[{}]: a weight of a message other than 1 is not built in: leave such turns out", where,
                   column, i);
    const auto content = m.find("content");
    const bool calls = m.contains("tool_calls") && !m["tool_calls"].is_null();
    const bool older = m.contains("function_call") && !m["function_call"].is_null();
    if (content == m.end() || content->is_null()) {
      if (!calls && !older) fail_input("{}: {}[{}] has no \"content\" (and no \"tool_calls\")", where, column, i);
    } else if (content->is_array()) {
      for (const OrderedJson& part : *content)
        if (text_member(part, "type") != "text")
          fail_missing("{}: {}[{}] holds parts other than text; this build trains text only, remove such rows", where,
                       column, i);
    } else if (!content->is_string()) {
      fail_input("{}: {}[{}]: \"content\" must be a text", where, column, i);
    }
    if (calls && !m["tool_calls"].is_array())
      fail_input("{}: {}[{}]: \"tool_calls\" must be an array", where, column, i);
    if (calls)
      for (size_t k = 0; k < m["tool_calls"].size(); ++k) {
        const OrderedJson& call = m["tool_calls"][k];
        // Some sets leave out the level of "function".
        const OrderedJson* f = call.is_object() && call.contains("function") ? &call["function"] : &call;
        if (!f->is_object() || !f->contains("name") || !(*f)["name"].is_string())
          fail_input("{}: {}[{}].tool_calls[{}] must be {{\"function\": {{\"name\": …, \"arguments\": …}}}}", where,
                     column, i, k);
      }
  }
}

namespace {

void drop_nulls(OrderedJson& object) {
  for (auto it = object.begin(); it != object.end();) it = it->is_null() ? object.erase(it) : std::next(it);
}

// OpenAI's clients and tables write out what a message does not have ("content": null beside tool_calls), but templates
// ask whether a member is there: they would take the length of null, or print "None". So does transformers leave them
// out. In arguments null is a value.
void drop_absent_members(OrderedJson& message) {
  drop_nulls(message);
  if (!message.contains("tool_calls")) return;
  for (OrderedJson& call : message["tool_calls"]) {
    drop_nulls(call);
    if (call.contains("function")) drop_nulls(call["function"]);
  }
}

// OpenAI's way before tools: one call beside the content, and its result as a message of the role "function".
void take_older_calls(OrderedJson& message, const std::string& where) {
  if (message["role"] == "function") message["role"] = "tool";
  const auto old = message.find("function_call");
  if (old == message.end()) return;
  if (message.contains("tool_calls")) fail_input("{}: a message has both function_call and tool_calls", where);
  const OrderedJson call = *old;
  message.erase("function_call");
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string())
    fail_input("{}: function_call must be {{\"name\": …, \"arguments\": …}}", where);
  OrderedJson arguments = call.value("arguments", OrderedJson::object());
  if (arguments.is_string())
    arguments = parse_ordered_json(arguments.get_ref<const std::string&>(), where + ": function_call's arguments");
  message["tool_calls"] = one_call(call["name"], std::move(arguments));
}

// Checked messages, each content one text: most templates know no parts.
OrderedJson whole_messages(OrderedJson messages, const std::string& where, std::string_view column) {
  check_messages(messages, where, column);
  for (size_t i = 0; i < messages.size(); ++i) {
    drop_absent_members(messages[i]);
    take_older_calls(messages[i], fmt::format("{}: {}[{}]", where, column, i));
    if (!messages[i].contains("content") || !messages[i]["content"].is_array()) continue;
    std::string all;
    for (const OrderedJson& part : messages[i]["content"]) {
      if (!part.contains("text") || !part["text"].is_string())
        fail_input("{}: {}[{}]: a part of type text holds a \"text\"", where, column, i);
      all += part["text"].get_ref<const std::string&>();
    }
    messages[i]["content"] = std::move(all);
  }
  return messages;
}

}  // namespace

Example chat_of(const RowView& row, const OrderedJson& prompt, std::string_view prompt_column,
                const OrderedJson& completion, std::string_view completion_column) {
  Example e;
  e.kind = Example::Kind::kChat;
  OrderedJson all = whole_messages(prompt, row.where(), prompt_column);
  e.trained_from = all.size();
  for (OrderedJson& m : whole_messages(completion, row.where(), completion_column)) all.push_back(std::move(m));
  e.tools = read_tools(row);
  e.messages = std::make_shared<OrderedJson>(std::move(all));
  return e;
}

Example read_chat(const RowView& row, Shape shape) {
  if (shape == Shape::kCompletion) {  // TRL's prompt and completion as lists
    for (const char* column : {"prompt", "completion"})
      if (const OrderedJson& v = row.need(column); !v.is_array())
        row.wrong_type(column, v, "a list of messages, as its other half is,");
    return chat_of(row, row.need("prompt"), "prompt", row.need("completion"), "completion");
  }
  Example e;
  e.kind = Example::Kind::kChat;
  OrderedJson messages;
  if (shape == Shape::kMessages) {
    const OrderedJson& v = row.need("messages");
    if (!v.is_array()) row.wrong_type("messages", v, "an array of {\"role\", \"content\"}");
    messages = v;
  } else if (shape == Shape::kShareGpt) {
    messages = read_sharegpt(row);
  } else if (shape == Shape::kAlpaca) {
    messages = read_alpaca(row);
  } else {
    messages = OrderedJson::array({message("user", row.text("question")), message("assistant", row.text("answer"))});
  }
  messages = whole_messages(std::move(messages), row.where(), shape == Shape::kShareGpt ? "conversations" : "messages");
  if (shape != Shape::kAlpaca && shape != Shape::kQuestion) e.tools = read_tools(row);
  e.messages = std::make_shared<OrderedJson>(std::move(messages));
  return e;
}

}  // namespace mxt::data
