// Recipes that name no machine: they are for the one that runs them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"

namespace mxt::config {

// What a recipe without a `hardware` section is for: called for such a recipe alone. Without it (recipe.h's functions)
// that is the processor.
using ThisMachine = std::function<GpuName()>;

// As recipe.h's of the same names.
std::vector<Issue> check_recipe(std::string_view text, std::string_view source, Recipe* out, const ThisMachine& here);
Recipe parse_recipe(std::string_view text, std::string_view source, const ThisMachine& here);
Recipe load_recipe(const std::string& path, const ThisMachine& here);

// The recipe's text with its machine written down, so that it means the same on any other: the file's own where it has
// a `hardware` section.
std::string settled_text(const Recipe& recipe);

}  // namespace mxt::config
