// Rows whose lists stand as JSON text, as in tables without nested columns, and OpenAI's published preference rows.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/shape/row.h"

namespace mxt::data {
namespace {

bool begins_with(const OrderedJson& v, char c) {
  if (!v.is_string()) return false;
  const std::string_view s = trim(v.get_ref<const std::string&>());
  return !s.empty() && s[0] == c;
}

OrderedJson parsed(const OrderedJson& text, const std::string& at) {
  try {
    return parse_ordered_json(text.get_ref<const std::string&>(), at);
  } catch (const Error& e) {
    fail_input("{}; a list in a column of texts is JSON (in Python json.dumps, not str)", e.what());
  }
}

void open_list(OrderedJson& v, const std::string& at) {
  if (begins_with(v, '[') || begins_with(v, '{')) v = parsed(v, at);
}

void open_turns(OrderedJson& v, const std::string& at) {
  open_list(v, at);
  if (!v.is_array()) return;
  for (size_t i = 0; i < v.size(); ++i)
    if (begins_with(v[i], '{')) v[i] = parsed(v[i], fmt::format("{}[{}]", at, i));
}

}  // namespace

bool says_turns(std::string_view text) {
  const auto take = [&](std::string_view one_of) {
    text = trim(text);
    if (text.empty() || one_of.find(text[0]) == one_of.npos) return false;
    text.remove_prefix(1);
    return true;
  };
  if (!take("[") || !take("{") || !take("\"'")) return false;
  static constexpr std::array<std::string_view, 4> kKeys = {"role", "content", "from", "value"};
  return std::any_of(kKeys.begin(), kKeys.end(), [&](std::string_view key) {
    return text.starts_with(key) && text.size() > key.size() && (text[key.size()] == '"' || text[key.size()] == '\'');
  });
}

bool is_turns(const OrderedJson& v) {
  return (v.is_array() && !v.empty() && (v[0].is_object() || begins_with(v[0], '{'))) ||
         (v.is_string() && says_turns(v.get_ref<const std::string&>()));
}

bool is_openai_input(const OrderedJson& prompt, const OrderedJson* chosen) {
  if (prompt.is_object()) return prompt.contains("messages");
  return chosen && is_turns(*chosen) && begins_with(prompt, '{') &&
         prompt.get_ref<const std::string&>().find("\"messages\"") != std::string::npos;
}

OrderedJson openai_input(const OrderedJson& v, const std::string& at) {
  OrderedJson input = v.is_string() ? parsed(v, at) : v;
  if (!input.contains("messages")) fail_input("{} has no \"messages\"", at);
  return input;
}

OrderedJson open_row(const Record& record, const Layout& layout) {
  OrderedJson row = row_object(record);
  const std::string where = record.where();
  const auto name = [&](std::string_view ours) {
    for (const auto& [our, theirs] : layout.columns)
      if (our == ours && row.contains(theirs)) return theirs;
    return std::string();
  };
  const auto open = [&](std::string_view ours, void (*with)(OrderedJson&, const std::string& at) = open_turns) {
    const std::string theirs = name(ours);
    if (!theirs.empty()) with(row[theirs], fmt::format("{}: \"{}\"", where, theirs));
  };
  const auto turns = [&](std::string_view ours) {
    const std::string theirs = name(ours);
    return !theirs.empty() && is_turns(row[theirs]);
  };
  const auto open_input = [&](const std::string& prompt) {
    const OrderedJson input = openai_input(row[prompt], fmt::format("{}: \"{}\"", where, prompt));
    for (const auto& [key, value] : input.items())
      if (key != "messages" && row.contains(key) && row[key] != value)
        fail_input("{}: \"{}\" stands in \"{}\" and beside it, and differs: leave one of them out", where, key, prompt);
    for (const auto& [key, value] : input.items()) row[key == "messages" ? prompt : key] = value;
  };
  if (const std::string prompt = name("prompt"); !prompt.empty()) {
    const std::string chosen = layout.shape == Shape::kPreference ? name("chosen") : "";
    if (is_openai_input(row[prompt], chosen.empty() ? nullptr : &row[chosen])) open_input(prompt);
  }
  for (const char* ours : {"tools", "history", "answers"}) open(ours, open_list);
  switch (layout.shape) {
    case Shape::kMessages:
      open("messages");
      break;
    case Shape::kShareGpt:
      open("conversations");
      break;
    case Shape::kPreference:
      if (turns("chosen") && turns("rejected")) open("chosen"), open("rejected");
      [[fallthrough]];
    case Shape::kReference:
      if (turns("prompt")) open("prompt");
      break;
    case Shape::kCompletion:  // a completion alone may be JSON that a model is to write
    case Shape::kLabelled:
      if (turns("prompt") && turns("completion")) open("prompt"), open("completion");
      break;
    default:
      break;
  }
  return row;
}

}  // namespace mxt::data
