// Words of the tool-call task. Every fifth value of a kind is for the test split alone. Towns, dishes and events are
// put together from two parts: a name that a model knows is recalled rather than copied (measured: real cities gave
// "Belgium" for "Brussels"), and copying is what the task teaches. A model from random weights learns such lists by
// heart instead; where `draws.make_up` says so, most of what trains is made up of syllables, in the same shapes.
#pragma once

#include <string>

#include "data/synth/draws.h"
#include "data/synth/synth.h"

namespace mxt::data::words {

std::string town(Draws& draws);          // "Ashford"
std::string dish(Draws& draws);          // "onion soup"
std::string person(Draws& draws);        // "Mara"
std::string event_title(Draws& draws);   // "team lunch"
std::string message_text(Draws& draws);  // "the train is delayed"

}  // namespace mxt::data::words
