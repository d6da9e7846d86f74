// A recipe's text from disk.
#pragma once

#include <cstddef>
#include <string>

namespace mxt::config {

inline constexpr size_t kMaxRecipeBytes = 1 << 20;

// The text of a regular file, or all that comes through a pipe or from a terminal. Errors (kBadInput): as read_file's;
// more than kMaxRecipeBytes; a device; an address; rows; a pipe that nobody has begun to write to after `pipe_seconds`.
std::string read_recipe_file(const std::string& path, double pipe_seconds = 10);

}  // namespace mxt::config
