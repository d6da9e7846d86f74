// Calls compared by structure: the order of arguments and white space do not count, the order of parallel calls does
// not either.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "infer/calls.h"
#include "train/rewards/rewards.h"

namespace mxt::train {
namespace {

double alike(const infer::Call& got, const infer::Call& want) {
  if (got.name != want.name) return 0;
  size_t equal = 0, all = want.arguments.size();
  for (const auto& [key, value] : got.arguments.items()) {
    equal += want.arguments.contains(key) && same_json(want.arguments[key], value);
    all += !want.arguments.contains(key);
  }
  return 0.5 + (all == 0 ? 0.5 : 0.5 * static_cast<double>(equal) / static_cast<double>(all));
}

}  // namespace

double tool_call_reward(std::string_view answer, std::string_view reference) {
  const auto made = infer::calls_of(answer);
  if (!made) return 0;  // a call was begun that is none
  const std::vector<infer::Call>& got = *made;
  std::vector<infer::Call> want = infer::calls_of(reference).value_or(std::vector<infer::Call>());
  const size_t most = std::max(got.size(), want.size());
  if (most == 0) return 1;  // no call was wanted, and none was made
  double sum = 0;
  for (const infer::Call& call : got) {  // each against the one left that it is most like
    const auto best = std::max_element(want.begin(), want.end(), [&](const infer::Call& x, const infer::Call& y) {
      return alike(call, x) < alike(call, y);
    });
    if (best == want.end()) break;
    sum += alike(call, *best);
    want.erase(best);
  }
  return sum / static_cast<double>(most);
}

}  // namespace mxt::train
