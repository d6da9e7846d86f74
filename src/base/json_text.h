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

// What a model or another program wrote, kept as parse_ordered_json keeps it; nothing where it is no JSON.
std::optional<OrderedJson> read_ordered_json(std::string_view text);

// Whether two values are equal: members in any order, numbers by their value and exactly (5 is 5.0, 2^53 is not
// 2^53 + 1), big integers among them.
bool same_json(const OrderedJson& a, const OrderedJson& b);

}  // namespace mxt
