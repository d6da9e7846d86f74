#include "tokenizer/chat/render/chat_run.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "jinja/values/from_json.h"
#include "pytext/unicode.h"

namespace mxt::tokenizer {

using jinja::Dict;
using jinja::Kind;
using jinja::Value;

namespace {

// Roles that templates know. They name who speaks, and some templates build a control token around them.
bool is_known_role(const std::string& role) {
  static constexpr std::string_view kRoles[] = {"system", "developer",    "user",      "assistant",
                                                "tool",   "tool_results", "function",  "ipython",
                                                "model",  "observation",  "tool_calls"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

// Names of a template's surroundings that a request must not replace.
bool is_reserved(std::string_view name) {
  static constexpr std::string_view kNames[] = {"messages",
                                                "tools",
                                                "add_generation_prompt",
                                                "range",
                                                "dict",
                                                "lipsum",
                                                "cycler",
                                                "joiner",
                                                "namespace",
                                                "raise_exception",
                                                "strftime_now",
                                                "loop",
                                                "self",
                                                "super",
                                                "caller",
                                                "varargs",
                                                "kwargs",
                                                "chat_template",
                                                "conversation",
                                                "conversations",
                                                "tokenize",
                                                "tokenizer",
                                                "padding",
                                                "truncation",
                                                "max_length",
                                                "return_tensors",
                                                "return_dict",
                                                "return_assistant_tokens_mask",
                                                "tokenizer_kwargs",
                                                "continue_final_message",
                                                "context",
                                                "environment",
                                                "true",
                                                "false",
                                                "none",
                                                "True",
                                                "False",
                                                "None"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool is_identifier(std::string_view name) {
  for (size_t i = 0, size = 0; i < name.size(); i += size) {
    const char32_t c = pytext::code_point(name, i, size);
    if (i == 0 ? !pytext::is_name_start(c) : !pytext::is_name_part(c)) return false;
  }
  return !name.empty();
}

constexpr uint64_t kMoreBudget = 8;  // renderings that look for spans get this many budgets together

}  // namespace

ChatRun::ChatRun(const ChatTemplate& t, const ChatInput& input, const jinja::Limits& limits)
    : template_(t), machine_(t.name(), limits), origins_(1), now_(input.now >= 0 ? input.now : std::time(nullptr)) {
  if (!input.messages || !input.messages->is_array()) fail_input("{}: messages must be an array", t.name());
  for (const auto& [name, token] : t.special_tokens())
    tokens_.emplace_back(name, jinja::json_text(machine_, token, 0, "a special token"));
  for (size_t i = 0; i < input.messages->size(); ++i)
    whole_.messages.push_back(make_message((*input.messages)[i], static_cast<int32_t>(i)));
  whole_.tools = Value::none();
  if (input.tools && !input.tools->is_null()) {
    if (!input.tools->is_array()) fail_input("{}: tools must be an array or null", t.name());
    std::vector<Value> tools;
    for (size_t i = 0; i < input.tools->size(); ++i) {
      const OrderedJson& tool = (*input.tools)[i];
      if (!tool.is_object()) fail_input("{}: tools[{}] must be an object (a JSON schema)", t.name(), i);
      tools.push_back(
          jinja::from_json(machine_, tool, add_origin({Origin::Part::kTool, -1, static_cast<int32_t>(i), true})));
    }
    whole_.tools = machine_.list(std::move(tools));
    whole_.tools.object()->origin = add_origin({Origin::Part::kKwarg, -1, -1, true});
  }
  whole_.add_generation_prompt = input.add_generation_prompt;
  if (input.kwargs && !input.kwargs->is_null()) add_kwargs(*input.kwargs);
}

uint32_t ChatRun::add_origin(Origin o) {
  origins_.push_back(o);
  return static_cast<uint32_t>(origins_.size() - 1);
}

void ChatRun::add_kwargs(const OrderedJson& kwargs) {
  if (!kwargs.is_object()) fail_input("{}: chat_template_kwargs must be an object", template_.name());
  const uint32_t origin = add_origin({Origin::Part::kKwarg, -1, -1, true});
  for (const auto& [name, value] : kwargs.items()) {
    if (is_reserved(name) || name.starts_with("_") || template_.special_tokens().contains(name) ||
        name.ends_with("_token"))
      fail_input("{}: chat_template_kwargs must not set '{}'", template_.name(), name.substr(0, 100));
    if (!is_identifier(name)) fail_input("{}: chat_template_kwargs holds a key that is no name", template_.name());
    kwargs_.emplace_back(name, jinja::from_json(machine_, value, origin));
  }
}

Value ChatRun::make_message(const OrderedJson& message, int32_t index) {
  if (!message.is_object()) fail_input("{}: messages[{}] must be an object", template_.name(), index);
  auto* d = machine_.make<Dict>(message.size() * 3 * sizeof(Value));
  d->message = index;
  d->origin = add_origin({Origin::Part::kField, index, -1, true});
  // As transformers: reasoning goes by several names, and templates read the first or the second.
  const OrderedJson* reasoning = nullptr;
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const auto it = message.find(key);
    if (it == message.end() || it->is_null()) continue;
    reasoning = &*it;
    break;
  }
  const auto field = [&](const std::string& key, const OrderedJson& value) {
    Value v;
    int32_t member = 0;
    for (const auto& item : d->items) {
      if (item.first.text() == key) break;
      ++member;
    }
    if (key == "tool_calls" && value.is_array()) {
      v = make_tool_calls(value, index);
    } else {
      const bool role = key == "role" && value.is_string();
      const bool known = role && is_known_role(value.get_ref<const std::string&>());
      v = jinja::from_json(machine_, value,
                           add_origin({role ? Origin::Part::kRole : Origin::Part::kField, index, -1, !known, member}));
    }
    jinja::put(machine_, *d, jinja::json_text(machine_, key, d->origin, "a key of the data"), v);
  };
  if (reasoning) field("thinking", *reasoning);
  for (const auto& [key, value] : message.items()) field(key, value);
  if (reasoning) field("reasoning_content", *reasoning);
  return Value::object(Kind::kDict, d);
}

Value ChatRun::make_tool_calls(const OrderedJson& calls, int32_t message) {
  std::vector<Value> items;
  for (size_t i = 0; i < calls.size(); ++i) items.push_back(make_call(calls[i], message, static_cast<int32_t>(i)));
  Value list = machine_.list(std::move(items));
  list.object()->origin = add_origin({Origin::Part::kField, message, -1, true});
  return list;
}

// One tool call, or the function in it: name and arguments have origins of their own.
Value ChatRun::make_call(const OrderedJson& call, int32_t message, int32_t item) {
  const uint32_t other = add_origin({Origin::Part::kCallOther, message, item, true});
  if (!call.is_object()) return jinja::from_json(machine_, call, other);
  auto* d = machine_.make<Dict>(call.size() * 3 * sizeof(Value));
  d->origin = other;
  for (const auto& [key, value] : call.items()) {
    Value v;
    if (key == "function" && value.is_object())
      v = make_call(value, message, item);
    else if (key == "name" || key == "arguments")
      v = jinja::from_json(
          machine_, value,
          add_origin({key == "name" ? Origin::Part::kCallName : Origin::Part::kCallArguments, message, item, true}));
    else
      v = jinja::from_json(machine_, value, other);
    jinja::put(machine_, *d, jinja::json_text(machine_, key, other, "a key of the data"), v);
  }
  return Value::object(Kind::kDict, d);
}

jinja::Rendered ChatRun::render(const Variant& v) {
  if (!first_) machine_.extend_budget(kMoreBudget);
  first_ = false;
  struct Rewind {  // what this rendering makes goes with it, whether it ends well or not
    jinja::Machine& m;
    size_t mark;
    ~Rewind() { m.rewind(mark); }
  } rewind{machine_, machine_.mark()};
  jinja::Variables variables = tokens_;
  variables.emplace_back("documents", Value::none());
  if (v.with_kwargs) variables.insert(variables.end(), kwargs_.begin(), kwargs_.end());
  variables.emplace_back("messages", machine_.list(v.messages));
  variables.emplace_back("tools", v.tools);
  variables.emplace_back("add_generation_prompt", Value::boolean(v.add_generation_prompt));
  return jinja::Interp(machine_, template_.jinja().ast(), variables, now_).run();
}

std::optional<jinja::Rendered> ChatRun::try_render(const Variant& v) {
  try {
    return render(v);
  } catch (const jinja::TemplateLimit&) {
    throw;
  } catch (const jinja::TemplateError&) {
    return std::nullopt;
  }
}

bool ChatRun::is_assistant(size_t i) const {
  const Value* role = messages()[i].as<Dict>().find(std::string_view("role"));
  return role && role->is_string() && role->text() == "assistant";
}

Value ChatRun::message_with(size_t i, std::string_view key, std::optional<Value> value) {
  const auto& from = messages()[i].as<Dict>();
  auto* d = machine_.make<Dict>(from.items.size() * 3 * sizeof(Value));
  d->message = from.message;
  d->origin = from.origin;
  for (const auto& [k, v] : from.items) {
    const bool changed = k.is_string() && k.text() == key;
    if (!changed)
      jinja::put(machine_, *d, k, v);
    else if (value)
      jinja::put(machine_, *d, k, *value);
  }
  return Value::object(Kind::kDict, d);
}

Value ChatRun::plain_assistant(size_t i, std::string text) {
  auto* d = machine_.make<Dict>(8 * sizeof(Value));
  d->message = static_cast<int32_t>(i);
  const uint32_t role = add_origin({Origin::Part::kRole, d->message, -1, false});
  const uint32_t field = add_origin({Origin::Part::kField, d->message, -1, true});
  d->origin = field;
  jinja::put(machine_, *d, machine_.text("role"), machine_.text("assistant", {role, 0}));
  jinja::put(machine_, *d, machine_.text("content"), machine_.text(std::move(text), {field, 0}));
  return Value::object(Kind::kDict, d);
}

}  // namespace mxt::tokenizer
