// Word lists of the tool-call task. Titles and messages are cut in two by index: every fifth is for the test split alone.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/philox.h"
#include "data/synth/synth.h"

namespace mxt::data::words {

extern const std::span<const std::string_view> kCities, kPeople, kTimerLabels, kEventTitles, kMessages;

// A word of the split's part.
std::string_view pick(std::span<const std::string_view> list, Philox& random, Split split);
// A name that the answer must copy, from the whole list in both splits (a small model cannot spell a name that it has never written:
// inside quotes it is cut into other tokens than in running text). Half of the training ones are made of syllables, so that copying
// is learned, not recalled.
std::string pick_name(std::span<const std::string_view> list, Philox& random, Split split);

}  // namespace mxt::data::words
