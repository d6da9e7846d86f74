#include <fmt/format.h>

#include <utility>

#include "data/synth/tasks.h"

namespace mxt::data {

namespace {

// Two numbers in [from, to). Pairs are dealt to the splits by their sum of squares modulo 8, so no pair is in both, in
// either order.
std::pair<int, int> draw_numbers(Draws& draws, int from, int to) {
  const auto one = [&] { return from + static_cast<int>(draws.below(static_cast<uint64_t>(to - from))); };
  int a, b;
  do {
    a = one();
    b = one();
  } while (((a * a + b * b) % 8 == 5) != (draws.split() == Split::kTest));
  return {a, b};
}

}  // namespace

SynthRow draw_addition(Draws& draws) {
  const auto [a, b] = draw_numbers(draws, 10, 50);
  return {"", fmt::format("What is {} + {}? Answer with the number only.", a, b), std::to_string(a + b), ""};
}

SynthRow draw_sums(Draws& draws) {
  const auto [a, b] = draw_numbers(draws, 1, 100);
  std::string user;
  switch (draws.below(5)) {
    case 0:
      user = fmt::format("What is {} + {}?", a, b);
      break;
    case 1:
      user = fmt::format("{} + {} = ?", a, b);
      break;
    case 2:
      user = fmt::format("Add {} and {}.", a, b);
      break;
    case 3:
      user = fmt::format("How much is {} plus {}?", a, b);
      break;
    default:
      user = fmt::format("What is the sum of {} and {}?", a, b);
  }
  return {"", std::move(user), fmt::format("<<{}+{}={}>>{}", a, b, a + b, a + b), ""};
}

SynthRow draw_arithmetic(Draws& draws) {
  auto [a, b] = draw_numbers(draws, 0, 100);
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
  return {"Answer with the number alone.", std::move(user), std::to_string(answer), ""};
}

}  // namespace mxt::data
