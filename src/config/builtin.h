// The recipes that ship with the program (recipes/*.yaml), compiled in.
#pragma once

#include <span>
#include <string_view>

namespace mxt::config {

struct BuiltinRecipe {
  std::string_view name;  // file name without .yaml
  std::string_view text;
  // The comment at the head, without marks: one or a few sentences.
  std::string_view head() const;
};

std::span<const BuiltinRecipe> builtin_recipes();  // sorted by name
// kBadInput with the nearest name where there is none.
const BuiltinRecipe& builtin_recipe(std::string_view name);

}  // namespace mxt::config
