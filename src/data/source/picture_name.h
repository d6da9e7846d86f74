// Names of picture files.
#pragma once

#include <string_view>

namespace mxt::data {

// Whether a name ends as those of JPEG, PNG and WebP files do.
bool names_picture(std::string_view path);

}  // namespace mxt::data
