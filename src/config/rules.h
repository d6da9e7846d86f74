// What holds between fields (each field's own range is in its declaration).
#pragma once

#include "config/recipe.h"

namespace mxt::config {

class Reader;

// The eight keys on MI300-class hardware, where the recipe leaves one out.
void fill_env(Recipe* recipe);
// Every broken rule becomes an issue with its reason, at the place of the key that breaks it. A rule whose inputs
// already have an issue is passed over.
void check_rules(const Recipe& recipe, Reader& reader);
// The same rules for the JSON Schema of one section (dotted path, "" = the whole recipe), as far as it can say them: a
// list of if/then, empty where there is none. In schema_rules.cc.
OrderedJson schema_rules(std::string_view path);

}  // namespace mxt::config
