// Random choices of a split. Training deals them like cards: every value of a choice once, in random order, before any
// comes again, so that a few hundred rows meet them all (of 30 names one or two would be missed by 90 free draws, and a
// model cannot copy what it has not met). Test rows draw freely.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "data/synth/synth.h"

namespace mxt::data {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream, Split split) : random_(seed, stream), split_(split) {}
  Split split() const { return split_; }
  // What the training split's names and texts are: of the lists, or made up of syllables (words.cc).
  bool make_up = false;
  uint64_t below(uint64_t n) { return random_.below(n); }  // in [0, n)
  // In [0, n) too. `choice` names it, and is a literal: its cards are kept under that name.
  uint64_t deal(std::string_view choice, uint64_t n) {
    if (split_ == Split::kTest) return below(n);
    std::vector<uint64_t>& cards = cards_[choice];
    if (cards.empty())
      for (uint64_t i = 0; i < n; ++i)
        cards.insert(cards.begin() + static_cast<std::ptrdiff_t>(below(cards.size() + 1)), i);
    const uint64_t card = cards.back();
    cards.pop_back();
    return card;
  }

 private:
  Philox random_;
  Split split_;
  std::map<std::string_view, std::vector<uint64_t>> cards_;
};

}  // namespace mxt::data
