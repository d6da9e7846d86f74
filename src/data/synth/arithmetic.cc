#include <fmt/format.h>

#include "data/synth/tasks.h"

namespace mxt::data {

SynthRow draw_arithmetic(Draws& draws) {
  // Pairs are dealt to the splits by their sum of squares modulo 8, so no pair is in both, in either order.
  int a, b;
  do {
    a = static_cast<int>(draws.below(100));
    b = static_cast<int>(draws.below(100));
  } while (((a * a + b * b) % 8 == 5) != (draws.split() == Split::kTest));
  const bool sum = draws.below(2) == 0;
  if (!sum && a < b) std::swap(a, b);
  const int answer = sum ? a + b : a - b;
  std::string user;
  switch (draws.below(3)) {
    case 0:
      user = fmt::format("What is {} {} {}?", a, sum ? "plus" : "minus", b);
      break;
    case 1:
      user = fmt::format("{} {} {} =", a, sum ? '+' : '-', b);
      break;
    default:
      user = sum ? fmt::format("Add {} and {}.", a, b) : fmt::format("Take {} from {}.", b, a);
  }
  return {"Answer with the number alone.", std::move(user), std::to_string(answer)};
}

}  // namespace mxt::data
