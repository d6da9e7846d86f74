// Any bytes as a recipe: issues or a recipe, never a crash. What is accepted has a canonical form that is stable.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mxt::config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Recipe r;
  const auto issues = check_recipe(text, "fuzz.yaml", &r);
  for (const Issue& i : issues)
    if (i.text().find('\n') != std::string::npos || i.line < 1 || i.column < 1) std::abort();  // one line each
  if (!issues.empty()) return 0;
  Recipe again;
  if (!check_recipe(text, "fuzz.yaml", &again).empty() || canonical(r) != canonical(again)) std::abort();
  off_stages(r);
  hints(r);
  return 0;
}
