#include "config/builtin.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mxt::config {

std::string_view BuiltinRecipe::head() const {
  // The first line; the rest of the comment is for who opens the file.
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with("# ") ? line.substr(2) : std::string_view{};
}

const BuiltinRecipe& builtin_recipe(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& r : builtin_recipes()) {
    if (r.name == name) return r;
    names.emplace_back(r.name);
  }
  const std::string near = nearest(name, names);
  fail_input("there is no recipe {}: {}`mindxtrain init --list` shows all", name,
             near.empty() ? "" : fmt::format("did you mean {}? ", near));
}

}  // namespace mxt::config
