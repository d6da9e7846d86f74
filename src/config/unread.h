// Fields that a recipe gives and nothing reads, since another of its fields decides.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"

namespace mxt::config {

// One line for each: the key, what decides, and that it may go.
std::vector<std::string> unread_fields(const Recipe& recipe);

}  // namespace mxt::config
