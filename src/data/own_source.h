// What is prepared does not lie among the rows that it is made of.
#pragma once

#include <string>

#include "config/recipe.h"

namespace mxt::data {

// A folder (or a pattern) whose files are all read must not hold the folder that is made of them: the next preparation
// would read that as rows. Errors (kBadInput): it does.
void refuse_own_source(const config::Data& data, const std::string& out);

}  // namespace mxt::data
