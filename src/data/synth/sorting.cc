#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "data/synth/tasks.h"

namespace mxt::data {

SynthRow draw_sorting(Draws& draws) {
  const size_t n = 3 + draws.below(5);
  std::vector<int> values;
  int sum;
  // Lists are dealt to the splits by their sum, which no order changes.
  do {
    values.clear();
    sum = 0;
    while (values.size() < n) {
      const int v = static_cast<int>(draws.below(1000));
      if (std::find(values.begin(), values.end(), v) != values.end()) continue;
      values.push_back(v);
      sum += v;
    }
  } while ((sum % 8 == 5) != (draws.split() == Split::kTest));
  std::vector<int> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const bool down = draws.below(2) == 0;
  if (down) std::reverse(sorted.begin(), sorted.end());
  const char* order = down ? "largest first" : "smallest first";
  const std::string list = fmt::format("{}", fmt::join(values, ", "));
  return {
      "Answer with the numbers alone, separated by a comma and a space.",
      draws.below(2) == 0 ? fmt::format("Sort, {}: {}", order, list) : fmt::format("Put {} in order, {}.", list, order),
      fmt::format("{}", fmt::join(sorted, ", "))};
}

}  // namespace mxt::data
