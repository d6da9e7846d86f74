// Base64 (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mxt {

std::string to_base64(std::string_view bytes);  // the standard alphabet, padded
// The standard or the URL-safe alphabet, not both in one text; with its padding or without. Empty where it is neither.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace mxt
