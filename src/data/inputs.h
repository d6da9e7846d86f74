// All that decides the prepared bytes, as the manifest states it.
#pragma once

#include <string>

#include "base/json.h"
#include "config/recipe.h"
#include "data/coder.h"
#include "data/settings.h"

namespace mxt::data {

OrderedJson inputs_of(const Settings& settings, const SampleEncoder& coder);
// Their digest; where a file stands does not change what it becomes.
std::string key_of(OrderedJson inputs);
// The same of a recipe with given rollouts. Errors (kBadInput): the file cannot be read.
OrderedJson inputs_of_rollouts(const config::Recipe& recipe);

// What of the recipe's settings the folder was not made with ("data.seq_len 64 (the recipe: 128), …"), "" where nothing
// differs; the rows that it was made of are not looked at. Errors (kBadInput): another tokenizer or chat template; no
// prepared folder.
std::string compare_settings(const std::string& folder, const config::Recipe& recipe, const SampleEncoder& coder);
// The same for all that the rows came from and what was done to them, byte by byte. "" too where the files are not here
// (prepared elsewhere: a warning says so), and for sources that would have to be fetched.
std::string compare_rows(const std::string& folder, const config::Recipe& recipe, const SampleEncoder& coder,
                         const Access& access);
// For who shows a prepared folder with a recipe: one line on what of the recipe the folder was not made with, "" where
// nothing differs. Without fetching or hashing: local files are compared by name and size, those of the Hub not at all.
// Errors (kBadInput): as compare_settings().
std::string compare_inputs(const std::string& folder, const config::Recipe& recipe, const SampleEncoder& coder);

}  // namespace mxt::data
