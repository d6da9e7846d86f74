// Conversations in their several spellings, as OpenAI messages.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "data/pictures.h"
#include "data/shape/row.h"
#include "tokenizer/chat/input/conversation.h"

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

// "" and [] are none.
std::shared_ptr<OrderedJson> read_tools(const RowView& row) {
  const OrderedJson* v = row.find("tools");
  if (!v) return nullptr;
  if (v->is_string() && trim(v->get_ref<const std::string&>()).empty()) return nullptr;
  if (!v->is_array()) row.wrong_type("tools", *v, "an array of tools, or its JSON text,");
  if (v->empty()) return nullptr;
  return std::make_shared<OrderedJson>(tokenizer::normalize_tools(*v, row.where() + ": tools"));
}

// "GPT" → "gpt", "function-call" → "function_call": the sets do not agree on these.
std::string speaker(const std::string& from) {
  std::string plain(trim(from));
  for (char& c : plain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c == '-' ? '_' : c;
  return plain;
}

constexpr std::array<std::array<std::string_view, 2>, 22> kSpeakers = {
    {{"human", "user"},         {"user", "user"},           {"prompter", "user"},
     {"gpt", "assistant"},      {"assistant", "assistant"}, {"model", "assistant"},
     {"bot", "assistant"},      {"chatbot", "assistant"},   {"chatgpt", "assistant"},
     {"bing", "assistant"},     {"bard", "assistant"},      {"ai", "assistant"},
     {"system", "system"},      {"developer", "developer"}, {"tool", "tool"},
     {"observation", "tool"},   {"function", "tool"},       {"function_response", "tool"},
     {"tool_response", "tool"}, {"tool_result", "tool"},    {"function_call", "call"},
     {"tool_call", "call"}}};

bool is_usual_role(std::string_view role) {
  return role == "ipython" ||  // Llama's results
         std::any_of(kSpeakers.begin(), kSpeakers.end(), [&](const auto& s) { return s[0] == role; });
}

OrderedJson written_call(OrderedJson calls, const std::string& at) {
  if (calls.is_string()) calls = parse_ordered_json(calls.get<std::string>(), at + ": a call");
  if (calls.is_object()) calls = OrderedJson::array({std::move(calls)});
  const auto is_call = [](const OrderedJson& c) { return c.is_object() && c.contains("name"); };
  if (!calls.is_array() || calls.empty() || !std::all_of(calls.begin(), calls.end(), is_call))
    fail_input("{}: a call must be JSON text {{\"name\": …, \"arguments\": {{…}}}}", at);
  OrderedJson out{{"role", "assistant"}, {"content", ""}, {"tool_calls", OrderedJson::array()}};
  for (OrderedJson& call : calls) out["tool_calls"].push_back(tokenizer::with_envelope(std::move(call)));
  return out;
}

// {"from", "value"} as a message, also where one of the two has the other form's name; further members go with it.
OrderedJson sharegpt_turn(const OrderedJson& turn, const std::string& at) {
  const auto field = [&](const char* key, const char* other) -> const std::string& {
    if (turn.is_object())
      for (const char* name : {key, other})
        if (turn.contains(name) && turn[name].is_string()) return turn[name].get_ref<const std::string&>();
    fail_input("{} needs \"from\" and \"value\", both texts", at);
  };
  const std::string &from = field("from", "role"), &value = field("value", "content");
  const auto find = [](const std::string& name) {
    return std::find_if(kSpeakers.begin(), kSpeakers.end(),
                        [who = speaker(name)](const auto& s) { return s[0] == who; });
  };
  const auto* known = find(from);
  // What stands there twice must say the same.
  const std::string role = text_member(turn, "role"), content = text_member(turn, "content");
  if (!role.empty() && role != from)
    if (const auto* other = find(role);
        known != kSpeakers.end() && other != kSpeakers.end() && (*other)[1] != (*known)[1])
      fail_input("{} is from \"{}\" and has the role \"{}\": leave one of them out", at, from, role);
  if (!content.empty() && content != value)
    fail_input("{} has a \"value\" and another \"content\": leave one of them out", at);
  if (known == kSpeakers.end()) {
    std::string names;
    for (const auto& s : kSpeakers) names += (names.empty() ? "" : ", ") + std::string(s[0]);
    fail_input("{} is from \"{}\"; known: {}", at, from, names);
  }
  OrderedJson out = (*known)[1] == "call" ? written_call(value, at)
                                          : OrderedJson{{"role", std::string((*known)[1])}, {"content", value}};
  for (const auto& [key, member] : turn.items())
    if (key != "from" && key != "value" && key != "role" && key != "content" && !out.contains(key)) out[key] = member;
  return out;
}

bool is_sharegpt(const OrderedJson& turn) {
  return turn.is_object() && ((turn.contains("from") && !turn.contains("role")) ||
                              (turn.contains("role") && turn.contains("value") && !turn.contains("content")));
}

// What the column says stands first, unless the conversation begins with words of its own.
void put_system(const std::string& system, OrderedJson& messages, Example& e) {
  if (system.empty()) return;
  if (text_member(messages[0], "role") != "system") {
    messages.insert(messages.begin(), message("system", system));
  } else if (messages[0].value("content", OrderedJson("")) == "") {
    messages[0]["content"] = system;
  } else if (messages[0]["content"] != system) {
    e.notes.push_back({"system", "the column \"system\" is not used: the conversation begins with a system turn"});
  }
}

OrderedJson read_sharegpt(const RowView& row, Example& e) {
  OrderedJson messages = row.need("conversations");
  if (!messages.is_array() || messages.empty())
    row.wrong_type("conversations", messages, "an array of {\"from\", \"value\"}, or its JSON text,");
  // Some sets hold OpenAI messages under this name: whole_messages() takes either.
  const bool openai = messages[0].is_object() && messages[0].contains("role") && !is_sharegpt(messages[0]);
  for (size_t i = 0; i < messages.size() && !openai; ++i)
    messages[i] = sharegpt_turn(messages[i], fmt::format("{}: conversations[{}]", row.where(), i));
  put_system(row.optional_text("system"), messages, e);
  return messages;
}

// Earlier rounds, as pairs of what was said and answered.
void add_history(const RowView& row, OrderedJson& messages) {
  const OrderedJson* v = row.find("history");
  if (!v) return;
  if (v->is_string() && trim(v->get_ref<const std::string&>()).empty()) return;
  const auto is_pair = [](const OrderedJson& p) {
    return p.is_array() && p.size() == 2 && p[0].is_string() && p[1].is_string();
  };
  if (!v->is_array() || !std::all_of(v->begin(), v->end(), is_pair))
    row.wrong_type("history", *v, "a list of [\"said\", \"answered\"] pairs");
  for (const OrderedJson& round : *v) {
    messages.push_back(message("user", round[0].get<std::string>()));
    messages.push_back(message("assistant", round[1].get<std::string>()));
  }
}

OrderedJson read_alpaca(const RowView& row) {
  OrderedJson messages = OrderedJson::array();
  if (std::string system = row.optional_text("system"); !system.empty())
    messages.push_back(message("system", std::move(system)));
  add_history(row, messages);
  const std::string input = row.optional_text("input");
  messages.push_back(
      message("user", input.empty() ? row.text("instruction") : row.text("instruction") + "\n\n" + input));
  messages.push_back(message("assistant", row.text("output")));
  return messages;
}

// xlam: a query, and the calls that answer it.
OrderedJson read_calls(const RowView& row) {
  const OrderedJson& answers = row.need("answers");
  if (!answers.is_string() && !answers.is_structured())
    row.wrong_type("answers", answers, "a list of calls, or its JSON text,");
  OrderedJson messages = OrderedJson::array({message("user", row.text("query"))});
  messages.push_back(written_call(answers, row.where() + ": answers"));
  return messages;
}

bool says_image(const OrderedJson& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const OrderedJson& m) {
    return text_member(m, "content").find("<image>") != std::string::npos;
  });
}

// Pictures of a request stand where its text says <image>, else before it.
void show_request(OrderedJson& messages, size_t pictures, const std::string& where) {
  const bool said = says_image(messages);
  OrderedJson& request = messages[messages.size() - 2]["content"];
  for (size_t i = 0; i < pictures && !said; ++i) request = "<image>" + request.get<std::string>();
  mark_pictures(messages, pictures, where);
}

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
    for (const auto& [name, meant] : kSpeakers)
      if (plain == name && *role != meant && meant != "call" && (meant != "tool" || name == "tool"))
        fail_input("{}: {}[{}]: the role \"{}\" is written \"{}\"", where, column, i, role->get<std::string>(), meant);
    const auto content = m.find("content");
    const bool calls = (m.contains("tool_calls") && !m["tool_calls"].is_null()) ||
                       (m.contains("function_call") && !m["function_call"].is_null());
    const auto refusal = m.find("refusal");
    const bool refuses = *role == "assistant" && refusal != m.end() && !refusal->is_null() && *refusal != "";
    if (content == m.end() || content->is_null()) {
      if (!calls && !refuses) fail_input("{}: {}[{}] has no \"content\" (and no \"tool_calls\")", where, column, i);
    } else if (!content->is_string() && !content->is_array()) {
      fail_input("{}: {}[{}]: \"content\" must be a text", where, column, i);
    }
  }
}

// Checked messages in OpenAI's form; what of them is passed over goes to `e`.
OrderedJson whole_messages(OrderedJson messages, const std::string& where, std::string_view column, Example& e) {
  for (size_t i = 0; i < messages.size(); ++i)
    if (is_sharegpt(messages[i])) messages[i] = sharegpt_turn(messages[i], fmt::format("{}: {}[{}]", where, column, i));
  check_messages(messages, where, column);
  OrderedJson flags = messages;  // what they say of training is checked here, where the row is known
  tokenizer::take_loss_flags(flags, fmt::format("{}: {}", where, column));
  for (const auto& [name, i] : tokenizer::unused_part_members(messages))
    e.notes.push_back(
        {"part " + name, fmt::format("\"{}\" of a part of {}[{}]'s content is not used", name, column, i)});
  for (size_t i = 0; i < messages.size(); ++i)
    if (const std::string role = messages[i]["role"]; !is_usual_role(role))
      e.notes.push_back({"role " + role, fmt::format("{}[{}]: the role \"{}\" is none of system, developer, user, "
                                                     "assistant and tool: it means what the chat template makes of it",
                                                     column, i, role)});
  return tokenizer::normalize_messages(std::move(messages), fmt::format("{}: {}", where, column));
}

// Calls stand in tool_calls or, where a model has a form of its own, in the text of the turn: one of words alone holds
// none.
bool may_call(const OrderedJson& m) {
  if (m["role"] != "assistant") return false;
  if (m.contains("tool_calls") && !m["tool_calls"].empty()) return true;
  const OrderedJson content = m.value("content", OrderedJson());
  return !content.is_string() || content.get_ref<const std::string&>().find_first_of("{[<(`") != std::string::npos;
}

// A turn's results are of its calls: no more of them than calls, and, where both say an id, of that one.
void check_answered(const OrderedJson& turn, const OrderedJson& result, size_t place, const std::string& what) {
  const OrderedJson calls = turn.value("tool_calls", OrderedJson::array());
  if (!calls.empty() && place >= calls.size())
    fail_input("{} is result {} of a turn with {} calls: leave it out, or add the call", what, place + 1, calls.size());
  if (!result.contains("tool_call_id")) return;
  const auto& id = result["tool_call_id"];
  const auto has_id = [](const OrderedJson& c) { return c.contains("id"); };
  if (std::any_of(calls.begin(), calls.end(), has_id) &&
      std::none_of(calls.begin(), calls.end(), [&](const OrderedJson& c) { return has_id(c) && c["id"] == id; }))
    fail_input("{} is the result of call {}, and the turn before it calls no such: give the id of one of its calls",
               what, id.dump());
}

void check_results(const OrderedJson& messages, const std::string& where) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] != "tool") continue;
    size_t before = i;
    while (before > 0 && messages[before - 1]["role"] == "tool") --before;
    if (before == 0 || !may_call(messages[before - 1]))
      fail_input(
          "{}: message {} is a tool's result, and the turn before it calls no tool: add the call (\"tool_calls\" of an "
          "assistant's message), or leave the result out",
          where, i);
    check_answered(messages[before - 1], messages[i], i - before, fmt::format("{}: message {}", where, i));
  }
}

}  // namespace

Example chat_of(const RowView& row, const OrderedJson& prompt, std::string_view prompt_column,
                const OrderedJson& completion, std::string_view completion_column) {
  Example e;
  e.kind = Example::Kind::kChat;
  OrderedJson all = whole_messages(prompt, row.where(), prompt_column, e);
  e.trained_from = all.size();
  for (OrderedJson& m : whole_messages(completion, row.where(), completion_column, e)) all.push_back(std::move(m));
  e.tools = read_tools(row);
  check_results(all, row.where());
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
    if (!v.is_array()) row.wrong_type("messages", v, "an array of {\"role\", \"content\"}, or its JSON text,");
    messages = v;
  } else if (shape == Shape::kShareGpt) {
    messages = read_sharegpt(row, e);
    e.pictures = read_sources(row);
    if (!e.pictures.empty()) mark_pictures(messages, e.pictures.size(), row.where());
  } else if (shape == Shape::kAlpaca) {
    messages = read_alpaca(row);
  } else if (shape == Shape::kCalls) {
    messages = read_calls(row);
  } else {
    messages =
        OrderedJson::array({message("user", row.text("question")), message("assistant", row.text_or_number("answer"))});
  }
  if (shape == Shape::kAlpaca || shape == Shape::kQuestion) {
    e.pictures = read_sources(row);
    if (!e.pictures.empty()) show_request(messages, e.pictures.size(), row.where());
  }
  if (shape == Shape::kShareGpt || shape == Shape::kAlpaca || shape == Shape::kQuestion)
    e.picture_missing = e.pictures.empty() && says_image(messages);
  if (shape == Shape::kMessages) e.pictures = take_pictures(messages, read_sources(row), row.where());
  messages =
      whole_messages(std::move(messages), row.where(), shape == Shape::kShareGpt ? "conversations" : "messages", e);
  if (shape == Shape::kMessages) put_system(row.optional_text("system"), messages, e);
  check_results(messages, row.where());
  if (shape != Shape::kAlpaca && shape != Shape::kQuestion) e.tools = read_tools(row);
  e.messages = std::make_shared<OrderedJson>(std::move(messages));
  return e;
}

}  // namespace mxt::data
