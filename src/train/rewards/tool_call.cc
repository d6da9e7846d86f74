// Calls compared by structure: the order of arguments and white space do not count, the order of parallel calls does
// not either.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "train/rewards/rewards.h"

namespace mxt::train {
namespace {

// The calls of a text: one object or a list of them, bare or in <tool_call> tags; none where it is something else.
std::vector<Json> calls_of(std::string_view text) {
  constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
  std::vector<Json> out;
  const auto take = [&](std::string_view piece) {
    const Json j = Json::parse(trim(piece), nullptr, false);
    if (j.is_array())
      out.insert(out.end(), j.begin(), j.end());
    else
      out.push_back(j);
  };
  size_t at = text.find(kOpen);
  if (at == std::string_view::npos) take(text);
  while (at != std::string_view::npos) {
    const size_t begin = at + kOpen.size(), end = text.find(kClose, begin);
    take(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    at = end == std::string_view::npos ? end : text.find(kOpen, end);
  }
  for (const Json& c : out)
    if (!c.is_object() || !c.contains("name") || !c["name"].is_string()) return {};
  return out;
}

Json arguments_of(const Json& call) {
  for (const char* key : {"arguments", "parameters"})
    if (call.contains(key)) {
      if (call[key].is_object()) return call[key];
      if (call[key].is_string())
        if (const Json j = Json::parse(call[key].get<std::string>(), nullptr, false); j.is_object()) return j;
    }
  return Json::object();
}

double alike(const Json& got, const Json& want) {
  if (got["name"] != want["name"]) return 0;
  const Json a = arguments_of(got), b = arguments_of(want);
  size_t equal = 0, all = b.size();
  for (const auto& [key, value] : a.items()) {
    equal += b.contains(key) && b[key] == value;
    all += !b.contains(key);
  }
  return 0.5 + (all == 0 ? 0.5 : 0.5 * static_cast<double>(equal) / static_cast<double>(all));
}

}  // namespace

double tool_call_reward(std::string_view answer, std::string_view reference) {
  const std::vector<Json> got = calls_of(answer);
  std::vector<Json> want = calls_of(reference);
  const size_t most = std::max(got.size(), want.size());
  if (most == 0) return 1;  // no call was wanted, and none was made
  double sum = 0;
  for (const Json& call : got) {  // each against the one left that it is most like
    const auto best = std::max_element(want.begin(), want.end(),
                                       [&](const Json& x, const Json& y) { return alike(call, x) < alike(call, y); });
    if (best == want.end()) break;
    sum += alike(call, *best);
    want.erase(best);
  }
  return sum / static_cast<double>(most);
}

}  // namespace mxt::train
