// Names of modules against a regular expression of a file that may come from anyone.
#pragma once

#include <string>
#include <string_view>

namespace mxt::formats {

// With limits on its work. `key`: what an error (kBadInput) calls the pattern.
bool pattern_matches(const std::string& pattern, const std::string& key, std::string_view module);

}  // namespace mxt::formats
