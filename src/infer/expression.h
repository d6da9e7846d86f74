// The two kinds of expressions that the calculator computes, by Python's rules. Internal to the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mxt::infer {

std::optional<std::string> sum_value(std::string_view expression);    // digits + - * / // ( ) . and spaces
std::optional<std::string> count_value(std::string_view expression);  // 'text'.count('part')

}  // namespace mxt::infer
