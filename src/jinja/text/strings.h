// What methods of str and filters share. Every result keeps the origin of its pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/values/machine.h"

namespace mxt::jinja {

enum class CaseMap : uint8_t { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };

StrRef strip(Machine& m, const StrRef& s, const std::string* chars, bool left, bool right);
std::vector<Value> split_space(Machine& m, const StrRef& s, int64_t most, bool from_right);
std::vector<Value> split_on(Machine& m, const StrRef& s, std::string_view separator, int64_t most, bool from_right);
std::vector<Value> split_lines(Machine& m, const StrRef& s, bool keep_ends);
StrRef replace(Machine& m, const StrRef& s, std::string_view old, const Str& with, int64_t count);
StrRef change_case(Machine& m, const StrRef& s, CaseMap map);
bool is_all_case(std::string_view s, bool upper);  // islower(), isupper()
StrRef justify(Machine& m, const StrRef& s, int64_t width, char align, std::string_view fill);

}  // namespace mxt::jinja
