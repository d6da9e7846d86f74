#include "tokenizer/chat/render/dropped_fields.h"

#include <set>
#include <tuple>

#include "base/text.h"
#include "jinja/values/from_json.h"

namespace mxt::tokenizer {

using jinja::Dict;
using jinja::Kind;
using jinja::List;
using jinja::Value;

namespace {

using Seen = std::set<std::tuple<Origin::Part, int32_t, int32_t>>;

// Whether the text stays as it is without something. A template that then fails did look at it.
bool same_text(ChatRun& run, const jinja::Rendered& r, const Variant& v) {
  const auto other = run.try_render(v);
  return other && other->text == r.text;
}

void check_tools(ChatRun& run, const jinja::Rendered& r, const Seen& seen) {
  const Value& tools = run.whole().tools;
  if (!tools.is_sequence()) return;
  const auto& items = tools.as<List>().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (seen.contains({Origin::Part::kTool, -1, static_cast<int32_t>(i)})) continue;
    Variant v = run.whole();
    std::vector<Value> rest = items;
    rest.erase(rest.begin() + static_cast<int64_t>(i));
    v.tools = rest.empty() ? Value::none() : run.machine().list(std::move(rest));
    if (same_text(run, r, v))
      throw FieldDropped(
          fmt::format("{}: the template leaves out tools[{}]: set data.tools_in: system (tools are then "
                      "listed in the system message), use a model whose template knows tools, or rows without them",
                      run.chat_template().name(), i));
  }
}

bool is_empty(const Value& v) {
  if (v.is_string()) return v.text().empty();
  if (v.is(Kind::kDict)) return v.as<Dict>().items.empty();
  return v.is_none();
}

// The dict that has name and arguments: the call's function, or the call.
const Dict* function_of(const Value& call) {
  if (!call.is(Kind::kDict)) return nullptr;
  const Value* f = call.as<Dict>().find(std::string_view("function"));
  return f && f->is(Kind::kDict) ? &f->as<Dict>() : &call.as<Dict>();
}

// The calls of message i without one, or with one whose function lost a key.
Value calls_without(ChatRun& run, const List& calls, size_t item, std::string_view key) {
  jinja::Machine& m = run.machine();
  std::vector<Value> items = calls.items;
  if (key.empty()) {
    items.erase(items.begin() + static_cast<int64_t>(item));
    return m.list(std::move(items));
  }
  const auto without = [&](const Dict& d) {
    auto* copy = m.make<Dict>(d.items.size() * 3 * sizeof(Value));
    for (const auto& [k, v] : d.items) copy->set(k, k.is_string() && k.text() == key ? m.text("\uE000") : v);
    return Value::object(Kind::kDict, copy);
  };
  const Dict& call = items[item].as<Dict>();
  if (function_of(items[item]) == &call) {
    items[item] = without(call);
  } else {
    auto* copy = m.make<Dict>(call.items.size() * 3 * sizeof(Value));
    for (const auto& [k, v] : call.items)
      copy->set(k, k.is_string() && k.text() == "function" ? without(v.as<Dict>()) : v);
    items[item] = Value::object(Kind::kDict, copy);
  }
  return m.list(std::move(items));
}

void check_calls(ChatRun& run, const jinja::Rendered& r, const Seen& seen, size_t i) {
  const Value* calls = run.messages()[i].as<Dict>().find(std::string_view("tool_calls"));
  if (!calls || !calls->is_sequence()) return;
  const auto& list = calls->as<List>();
  for (size_t item = 0; item < list.items.size(); ++item) {
    const Dict* function = function_of(list.items[item]);
    std::vector<std::string_view> missing;
    const auto look = [&](std::string_view key, Origin::Part part) {
      const Value* v = function ? function->find(key) : nullptr;
      if (v && !is_empty(*v) && !seen.contains({part, static_cast<int32_t>(i), static_cast<int32_t>(item)}))
        missing.push_back(key);
    };
    look("name", Origin::Part::kCallName);
    look("arguments", Origin::Part::kCallArguments);
    if (!function && !seen.contains({Origin::Part::kCallOther, static_cast<int32_t>(i), static_cast<int32_t>(item)}))
      missing.push_back("");
    for (std::string_view key : missing) {
      Variant v = run.whole();
      v.messages[i] = run.message_with(i, "tool_calls", calls_without(run, list, item, key));
      if (same_text(run, r, v))
        throw FieldDropped(
            fmt::format("{}: the template leaves out {}messages[{}].tool_calls[{}]: set data.tools_in: "
                        "system (calls are then text of the answer), use a model whose template knows tool calls, or "
                        "rows without them",
                        run.chat_template().name(), key.empty() ? "" : fmt::format("the {} of ", key), i, item));
    }
  }
}

}  // namespace

void check_dropped_fields(ChatRun& run, const jinja::Rendered& r) {
  Seen seen;
  for (const jinja::Run& piece : r.runs) {
    const Origin& o = run.origin(piece.tag.origin);
    if (o.item >= 0) seen.insert({o.part, o.message, o.item});
  }
  check_tools(run, r, seen);
  for (size_t i = 0; i < run.messages().size(); ++i) check_calls(run, r, seen, i);
}

namespace {

// Message and member that pieces of the text come from.
std::set<std::pair<int32_t, int32_t>> written_members(const ChatRun& run, const jinja::Rendered& r) {
  std::set<std::pair<int32_t, int32_t>> out;
  for (const jinja::Run& piece : r.runs) {
    const Origin& o = run.origin(piece.tag.origin);
    out.insert({o.message, o.member});
  }
  return out;
}

}  // namespace

std::vector<size_t> left_out_contents(ChatRun& run, const jinja::Rendered& r) {
  const auto written = written_members(run, r);
  std::vector<size_t> out;
  for (size_t i = 0; i < run.messages().size(); ++i) {
    const auto& members = run.messages()[i].as<Dict>().items;
    for (size_t k = 0; k < members.size(); ++k) {
      const Value& content = members[k].second;
      if (members[k].first.text() != "content" || !content.is_string() || trim(content.text()).empty()) continue;
      if (written.contains({static_cast<int32_t>(i), static_cast<int32_t>(k)})) continue;
      Variant v = run.whole();
      v.messages[i] = run.message_with(i, "content", run.machine().text(""));
      if (same_text(run, r, v)) out.push_back(i);
    }
  }
  return out;
}

namespace {

bool says_something(const Value& v) { return !is_empty(v) && !(v.is_sequence() && v.as<List>().items.empty()); }

// Reasoning has three names, of which a template reads one (ChatRun gives it two of them).
bool is_reasoning(std::string_view key) {
  return key == "reasoning_content" || key == "thinking" || key == "reasoning";
}
bool names(const jinja::Template& t, const std::string& key) {
  if (is_reasoning(key)) return t.reads_member("reasoning_content") || t.reads_member("thinking");
  return t.reads_member(key);
}

// Something else of a kind that a template may test for, but never what was there.
Value other_than(ChatRun& run, const Value& v) {
  if (v.is(Kind::kBool)) return Value::boolean(!v.as_bool());
  return run.machine().text("\uE000");
}

// A copy of a dict with the members that `of` names replaced, or left out where `value` is nothing.
template <typename Of>
Value changed(ChatRun& run, const Dict& d, Of&& of, const std::optional<Value>& value) {
  auto* copy = run.machine().make<Dict>(d.items.size() * 3 * sizeof(Value));
  copy->message = d.message;
  copy->origin = d.origin;
  for (const auto& [k, v] : d.items) {
    const bool here = k.is_string() && of(k.text());
    if (!here || value) jinja::put(run.machine(), *copy, k, here ? *value : v);
  }
  return Value::object(Kind::kDict, copy);
}

// Whether the template's text depends on members of a message: it does where it differs, or fails, without them or with
// something else in their place. A name in its source says nothing of whose member it reads.
template <typename Of>
bool depends_on(ChatRun& run, const jinja::Rendered& r, size_t i, const Value& value, Of&& of) {
  const auto differs = [&](const std::optional<Value>& other) {
    Variant v = run.whole();
    v.messages[i] = changed(run, run.messages()[i].as<Dict>(), of, other);
    return !same_text(run, r, v);
  };
  return differs(std::nullopt) || differs(other_than(run, value));
}

std::string_view role_of(const Value& message) {
  const Value* role = message.as<Dict>().find(std::string_view("role"));
  return role && role->is_string() ? std::string_view(role->text()) : std::string_view();
}

// What ties messages together, and what has findings of its own.
bool is_bound(std::string_view key, std::string_view role) {
  if (key == "role" || key == "content" || key == "tool_calls") return true;
  if (is_reasoning(key)) return role == "assistant";
  // Whose answer it is: the call before says it too.
  return role == "tool" && (key == "tool_call_id" || key == "name");
}

using Unread = std::vector<std::pair<std::string, size_t>>;

// Members of the calls of message i besides those of every call.
void find_unread_in_calls(ChatRun& run, const jinja::Rendered& r, size_t i, std::set<std::string>& met, Unread& out) {
  const Value* calls = run.messages()[i].as<Dict>().find(std::string_view("tool_calls"));
  if (!calls || !calls->is_sequence()) return;
  const auto& items = calls->as<List>().items;
  for (size_t item = 0; item < items.size(); ++item) {
    const Dict* function = function_of(items[item]);
    if (!function) continue;
    const Dict& call = items[item].as<Dict>();
    std::vector<const Dict*> parts{&call};
    if (function != &call) parts.push_back(function);
    for (const Dict* d : parts) {
      for (const auto& [k, v] : d->items) {
        const std::string& key = k.text();
        if (key == "id" || key == "type" || key == "index" || key == "function" || key == "name" ||
            key == "arguments" || !says_something(v))
          continue;
        const std::string path = (d == &call ? "tool_calls." : "tool_calls.function.") + key;
        if (!met.insert(path).second) continue;
        const auto of = [&](std::string_view name) { return name == key; };
        Value other = changed(run, *d, of, std::nullopt);
        if (d != &call) other = changed(run, call, [](std::string_view name) { return name == "function"; }, other);
        std::vector<Value> rest = items;
        rest[item] = other;
        Variant variant = run.whole();
        variant.messages[i] = run.message_with(i, "tool_calls", run.machine().list(std::move(rest)));
        if (same_text(run, r, variant)) out.emplace_back(path, i);
      }
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, size_t>> unread_members(ChatRun& run, const jinja::Rendered& r) {
  struct Member {
    size_t message;
    std::string key;
    const Value* value;
    bool named;  // the template's source has the name, if not of this member
  };
  const auto written = written_members(run, r);
  std::vector<Member> asked;
  std::set<std::string> met, unnamed;  // met: by role, since a template that reads one's may pass over another's
  for (size_t i = 0; i < run.messages().size(); ++i) {
    const auto& members = run.messages()[i].as<Dict>().items;
    const std::string_view role = role_of(run.messages()[i]);
    for (size_t k = 0; k < members.size(); ++k) {
      const std::string& key = members[k].first.text();
      const bool named = names(run.chat_template().jinja(), key);
      if ((is_bound(key, role) && !(is_reasoning(key) && !named)) || !says_something(members[k].second)) continue;
      if (written.contains({static_cast<int32_t>(i), static_cast<int32_t>(k)})) continue;
      if (!named) unnamed.insert(key);
      if (met.insert(fmt::format("{} {}", role, is_reasoning(key) ? "reasoning" : key)).second)
        asked.push_back({i, key, &members[k].second, named});
    }
  }
  // Names that the source has nowhere are asked for all at once: nearly always nothing comes of them.
  bool none = !unnamed.empty();
  if (none) {
    Variant v = run.whole();
    for (Value& message : v.messages)
      message =
          changed(run, message.as<Dict>(), [&](const std::string& key) { return unnamed.contains(key); }, std::nullopt);
    none = same_text(run, r, v);
  }
  Unread out;
  std::set<std::string> said;
  for (const Member& m : asked) {
    const bool reasons = is_reasoning(m.key);
    const std::string name = reasons ? "reasoning_content" : m.key;
    const auto of = [&](std::string_view other) { return reasons ? is_reasoning(other) : other == m.key; };
    if (said.contains(name) || (!(none && !m.named) && depends_on(run, r, m.message, *m.value, of))) continue;
    said.insert(name);
    out.emplace_back(name, m.message);
  }
  for (size_t i = 0; i < run.messages().size(); ++i) find_unread_in_calls(run, r, i, said, out);
  return out;
}

namespace {

// What a content says between <think> and </think>.
std::string_view thought_in(std::string_view content) {
  const size_t end = content.find("</think>");
  if (end == content.npos) return {};
  const size_t begin = content.substr(0, end).rfind("<think>");
  return trim(begin == content.npos ? content.substr(0, end) : content.substr(begin + 7, end - begin - 7));
}

// What the text has of a member of message i.
std::string text_of(const ChatRun& run, const jinja::Rendered& r, size_t i, size_t member) {
  std::string out;
  size_t begin = 0;
  for (const jinja::Run& piece : r.runs) {
    const Origin& o = run.origin(piece.tag.origin);
    if (o.message == static_cast<int32_t>(i) && o.member == static_cast<int32_t>(member))
      out.append(r.text, begin, piece.end - begin);
    begin = piece.end;
  }
  return out;
}

}  // namespace

std::vector<size_t> left_out_thoughts(ChatRun& run, const jinja::Rendered& r) {
  const auto written = written_members(run, r);
  const Value other = run.machine().text("\uE000");
  std::vector<std::pair<size_t, Value>> asked;  // messages with other thoughts where the text has not the own ones
  for (size_t i = 0; i < run.messages().size(); ++i) {
    if (!run.is_assistant(i)) continue;
    const auto& message = run.messages()[i].as<Dict>();
    bool reasons = false, there = false;
    std::optional<Value> content;
    for (size_t k = 0; k < message.items.size(); ++k) {
      const std::string& key = message.items[k].first.text();
      const Value& v = message.items[k].second;
      if (is_reasoning(key) && says_something(v) && names(run.chat_template().jinja(), key)) {
        reasons = true;
        there = there || written.contains({static_cast<int32_t>(i), static_cast<int32_t>(k)});
      }
      if (key != "content" || !v.is_string()) continue;
      const std::string_view thought = thought_in(v.text());
      if (thought.empty() || text_of(run, r, i, k).find(thought) != std::string::npos) continue;
      std::string text = v.text();
      text.replace(text.find(thought), thought.size(), "\uE000");
      content = run.machine().text(std::move(text));
    }
    if (content)
      asked.emplace_back(i, run.message_with(i, "content", *content));
    else if (reasons && !there)
      asked.emplace_back(i, changed(run, message, is_reasoning, other));
  }
  std::vector<size_t> out;
  Variant all = run.whole();
  for (const auto& [i, message] : asked) all.messages[i] = message;
  const bool none = !asked.empty() && same_text(run, r, all);  // nearly always: one rendering tells
  for (const auto& [i, message] : asked) {
    Variant v = run.whole();
    v.messages[i] = message;
    if (none || same_text(run, r, v)) out.push_back(i);
  }
  return out;
}

}  // namespace mxt::tokenizer
