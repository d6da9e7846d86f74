// Integers that 64 bits do not hold (token amounts, long ids): parse_ordered_json keeps them digit by digit. To
// nlohmann they are no number, and its dump does not know them. parse_json, for our own files, makes them the nearest
// double.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace mxt {

// Its digits; nothing for any other value.
std::optional<std::string_view> big_integer(const OrderedJson& j);

// As dump(indent) writes it, big integers digit by digit, and U+FFFD for what is not UTF-8.
std::string json_text(const OrderedJson& j, int indent = -1);

}  // namespace mxt
