// Words of the tool-call task. Every fifth value of a kind is for the test split alone. Towns, dishes and events are
// put together from two parts: a name that a model knows is recalled rather than copied (measured: real cities gave
// "Belgium" for "Brussels"), and copying is what the task teaches.
#pragma once

#include <string>

#include "base/philox.h"
#include "data/synth/synth.h"

namespace mxt::data::words {

std::string town(Philox& random, Split split);          // "Ashford"
std::string dish(Philox& random, Split split);          // "onion soup"
std::string person(Philox& random, Split split);        // "Mara"
std::string event_title(Philox& random, Split split);   // "team lunch"
std::string message_text(Philox& random, Split split);  // "the train is delayed"

}  // namespace mxt::data::words
