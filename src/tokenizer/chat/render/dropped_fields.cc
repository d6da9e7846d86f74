#include "tokenizer/chat/render/dropped_fields.h"

#include <set>
#include <tuple>

#include "base/text.h"

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
bool is_reasoning(const std::string& key) {
  return key == "reasoning_content" || key == "thinking" || key == "reasoning";
}
bool reads(const jinja::Template& t, const std::string& key) {
  if (is_reasoning(key)) return t.reads_member("reasoning_content") || t.reads_member("thinking");
  return t.reads_member(key);
}

}  // namespace

std::vector<std::pair<std::string, size_t>> unread_members(const ChatRun& run, const jinja::Rendered& r) {
  const auto written = written_members(run, r);
  std::vector<std::pair<std::string, size_t>> out;
  std::set<std::string> met;
  for (size_t i = 0; i < run.messages().size(); ++i) {
    const auto& members = run.messages()[i].as<Dict>().items;
    const Value* role = run.messages()[i].as<Dict>().find(std::string_view("role"));
    const bool result = role && role->is_string() && role->text() == "tool";
    for (size_t k = 0; k < members.size(); ++k) {
      const std::string& key = members[k].first.text();
      if (key == "role" || key == "content" || key == "tool_calls" || key == "tool_call_id") continue;
      if (key == "name" && result) continue;  // whose answer it is: the call before says it too
      if (!says_something(members[k].second) || reads(run.chat_template().jinja(), key)) continue;
      const std::string name = is_reasoning(key) ? "reasoning_content" : key;
      if (written.contains({static_cast<int32_t>(i), static_cast<int32_t>(k)}) || !met.insert(name).second) continue;
      out.emplace_back(name, i);
    }
  }
  return out;
}

}  // namespace mxt::tokenizer
