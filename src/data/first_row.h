// Whether rows are what the method reads, as their first one tells.
#pragma once

#include <string>

#include "config/recipe.h"
#include "data/settings.h"
#include "data/shape/example.h"

namespace mxt::data {

// Errors (kBadInput): rows of another shape than the method asks for.
void require_shape(Answers answers, const Record& first, const Layout& layout);

// Why the first row of the recipe's data.path cannot be what the method reads, "" where it can. Looks at local files
// that are here and are read as they are (no data.sql, no given rollouts); a table's only where what reads it is
// installed.
std::string first_row_lacks(const config::Recipe& recipe);

}  // namespace mxt::data
