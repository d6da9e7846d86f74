// Which JSON types a schema allows, read through references and alternatives.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace mxt::serve {

using JsonTypes = uint32_t;  // a set
constexpr JsonTypes kNullType = 1, kBooleanType = 2, kIntegerType = 4, kNumberType = 8, kStringType = 16,
                    kArrayType = 32, kObjectType = 64, kAnyType = 127;

JsonTypes type_of(const OrderedJson& value);  // one of them; a whole number is an integer
// Of a member of an object schema; all where nothing is said of it. A number includes integers.
JsonTypes types_of_parameter(const OrderedJson& parameters, const std::string& name);

// The schema that a reference inside `document` names ("#", "#/$defs/A%20b", "#anchor"); null where there is none.
const OrderedJson* referred(const OrderedJson& document, const std::string& ref);

}  // namespace mxt::serve
