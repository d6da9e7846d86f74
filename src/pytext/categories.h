// Unicode's general categories (Unicode 14, utf8proc's tables).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace mxt::pytext {

using CodePoints = std::vector<std::pair<uint32_t, uint32_t>>;  // first and last of each range, ascending

// What \p{name} of a regular expression means: "L", "Lu", "Letter", "Uppercase_Letter", "gc=Lu",
// "General_Category=Letter". Nothing where that is no general category.
CodePoints of_category(std::string_view name);

}  // namespace mxt::pytext
