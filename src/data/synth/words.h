// Word lists of the tool-call task. Lists are cut in two by index: every fifth word is for the test split alone.
#pragma once

#include <span>
#include <string_view>

#include "base/philox.h"
#include "data/synth/synth.h"

namespace mxt::data::words {

extern const std::span<const std::string_view> kCities, kPeople, kTimerLabels, kEventTitles, kMessages;

// A word of the split's part.
std::string_view pick(std::span<const std::string_view> list, Philox& random, Split split);

}  // namespace mxt::data::words
