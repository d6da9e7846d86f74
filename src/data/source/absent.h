// Local files that a recipe names and that are not here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace mxt::data {

struct AbsentFile {
  std::string key, path;  // "data.path", as the recipe writes it
};
// Of the rows that a run would read: what is not here; of a mixture, whose files may ship with the program, what
// `shipped` (Access::shipped; may be empty) does not have either. Of a mixture whose sources are all optional, all of
// them where none is there.
std::vector<AbsentFile> absent_files(const config::Data& data,
                                     const std::function<std::string(const std::string&)>& shipped);

// A command that fetches this file, where it is a well-known public one by its name and folder; else "".
std::string how_to_get(const std::string& path);

}  // namespace mxt::data
