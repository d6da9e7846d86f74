#include "infer/calls.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"

namespace mxt::infer {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

OrderedJson arguments_of(const OrderedJson& call) {
  for (const char* key : {"arguments", "parameters"})
    if (call.contains(key)) {
      if (call[key].is_object()) return call[key];
      if (call[key].is_string())
        if (auto j = read_ordered_json(call[key].get_ref<const std::string&>()); j && j->is_object()) return *j;
    }
  return OrderedJson::object();
}

bool is_call(const OrderedJson& j) { return j.is_object() && j.contains("name") && j["name"].is_string(); }

// False where a piece of the text is no call.
bool take(std::string_view piece, std::vector<Call>& out) {
  const auto j = read_ordered_json(trim(piece));
  if (!j) return false;
  const OrderedJson list = j->is_array() ? *j : OrderedJson::array({*j});
  for (const OrderedJson& call : list) {
    if (!is_call(call)) return false;
    out.push_back({call["name"], arguments_of(call)});
  }
  return true;
}

}  // namespace

std::optional<std::vector<Call>> calls_of(std::string_view text) {
  std::vector<Call> out;
  size_t at = text.find(kOpen);
  if (at == std::string_view::npos) {
    if (!take(text, out)) out.clear();
    return out;
  }
  while (at != std::string_view::npos) {
    const size_t begin = at + kOpen.size(), end = text.find(kClose, begin);
    if (!take(text.substr(begin, end == std::string_view::npos ? end : end - begin), out)) return std::nullopt;
    at = end == std::string_view::npos ? end : text.find(kOpen, end);
  }
  return out;
}

std::vector<WantedCall> wanted_calls(const OrderedJson& list) {
  if (!list.is_array())
    fail_input("calls are a list of {{\"name\", \"arguments\"}}, not {}", json_text(list).substr(0, 80));
  std::vector<WantedCall> out;
  for (const OrderedJson& given : list) {
    const OrderedJson& call = given.is_object() && given.contains("function") ? given["function"] : given;
    if (!is_call(call)) fail_input("a call is {{\"name\", \"arguments\"}}, not {}", json_text(call).substr(0, 80));
    WantedCall w;
    w.name = call["name"];
    w.arguments = arguments_of(call);
    w.accept = call.value("accept", OrderedJson::object());
    const OrderedJson optional = call.value("optional", OrderedJson::array());
    if (!w.accept.is_object() ||
        !std::all_of(w.accept.begin(), w.accept.end(), [](const OrderedJson& x) { return x.is_array(); }))
      fail_input("the call of {}: \"accept\" is an object of lists", w.name);
    for (const OrderedJson& name : optional) {
      if (!optional.is_array() || !name.is_string())
        fail_input("the call of {}: \"optional\" is a list of names", w.name);
      w.optional.push_back(name);
    }
    out.push_back(std::move(w));
  }
  return out;
}

bool is_right(const Call& got, const WantedCall& want) {
  if (got.name != want.name) return false;
  for (const auto& [key, value] : got.arguments.items()) {
    const auto right = want.arguments.find(key);
    if (right == want.arguments.end()) return false;
    const auto others = want.accept.find(key);
    const auto equal = [&](const OrderedJson& x) { return same_json(x, value); };
    const bool accepted = others != want.accept.end() && std::any_of(others->begin(), others->end(), equal);
    if (!equal(*right) && !accepted) return false;
  }
  for (const auto& [key, value] : want.arguments.items())
    if (!got.arguments.contains(key) &&
        std::find(want.optional.begin(), want.optional.end(), key) == want.optional.end())
      return false;
  return true;
}

bool are_right(const std::vector<Call>& got, const std::vector<WantedCall>& want) {
  if (got.size() != want.size()) return false;
  // One may be right for several that are wanted: an assignment is looked for (augmenting paths).
  std::vector<int> taken(want.size(), -1);
  std::vector<bool> tried;
  const std::function<bool(size_t)> place = [&](size_t g) {
    for (size_t w = 0; w < want.size(); ++w) {
      if (tried[w] || !is_right(got[g], want[w])) continue;
      tried[w] = true;
      if (taken[w] >= 0 && !place(static_cast<size_t>(taken[w]))) continue;
      taken[w] = static_cast<int>(g);
      return true;
    }
    return false;
  };
  for (size_t g = 0; g < got.size(); ++g) {
    tried.assign(want.size(), false);
    if (!place(g)) return false;
  }
  return true;
}

}  // namespace mxt::infer
