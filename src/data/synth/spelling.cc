#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "data/synth/tasks.h"

namespace mxt::data {
namespace {

// Words that no model knows by heart: two to four syllables.
std::string draw_word(Draws& draws) {
  constexpr std::string_view kFirst = "bcdfghjklmnprstvwz", kVowel = "aeiou", kLast = "lmnrst";
  std::string w;
  for (size_t n = 2 + draws.below(3), i = 0; i < n; ++i) {
    w += kFirst[draws.below(kFirst.size())];
    w += kVowel[draws.below(kVowel.size())];
    if (draws.below(3) == 0) w += kLast[draws.below(kLast.size())];
  }
  return w;
}

// Every eighth word is the test split's, whatever is asked of it.
bool is_test_word(std::string_view w) {
  uint32_t h = 2166136261u;  // FNV-1a
  for (char c : w) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return (h >> 8) % 8 == 5;
}

std::string spaced(std::string_view letters) {
  std::string s;
  for (char c : letters) s += (s.empty() ? "" : " ") + std::string(1, c);
  return s;
}

}  // namespace

SynthRow draw_spelling(Draws& draws) {
  std::string w;
  do w = draw_word(draws);
  while (is_test_word(w) != (draws.split() == Split::kTest));
  constexpr std::array<const char*, 4> kOrdinal = {"first", "second", "third", "fourth"};
  switch (draws.below(4)) {
    case 0:
      return {"Answer with letters and spaces alone.", fmt::format("Spell \"{}\".", w), spaced(w)};
    case 1:
      return {"Answer with letters and spaces alone.", fmt::format("Spell \"{}\" backwards.", w),
              spaced(std::string(w.rbegin(), w.rend()))};
    case 2: {
      const size_t i = draws.below(4);
      return {"Answer with the letter alone.", fmt::format("What is the {} letter of \"{}\"?", kOrdinal[i], w),
              std::string(1, w[i])};
    }
    default: {
      const char c = w[draws.below(w.size())];
      int n = 0;
      for (char x : w) n += x == c;
      return {"Answer with the number alone.", fmt::format("How many times does \"{}\" stand in \"{}\"?", c, w),
              std::to_string(n)};
    }
  }
}

}  // namespace mxt::data
