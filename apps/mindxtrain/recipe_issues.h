// What a valid recipe asks for and cannot have here, before anything is fetched, opened or measured for it.
#pragma once

#include <vector>

#include "config/recipe.h"

namespace mxt::app {

// What training would refuse: rewards and tools that cannot be used, local rows of another shape than the method reads.
// At its place in the file.
std::vector<config::Issue> training_issues(const config::Recipe& recipe);
// These, and what publishing, or a server that is paid, would refuse.
std::vector<config::Issue> stage_issues(const config::Recipe& recipe);
// Errors: kBadInput, the first of training_issues(). `rows`: whether the recipe's own rows are read.
void require_trainable(const config::Recipe& recipe, bool rows = true);

}  // namespace mxt::app
