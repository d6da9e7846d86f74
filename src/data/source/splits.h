// Splits by name, and where one JSON file holds them.
#pragma once

#include <string>
#include <string_view>

#include "data/source/records.h"

namespace mxt::data {

// train, validation or test where `word` is one of their names, else "".
std::string known_split(std::string_view word);

// Of a JSON file whose rows stand in an object, {"test": [{…}, …]}: what it calls their list; "" of any other file.
std::string rows_name(const SourceFile& file);

}  // namespace mxt::data
