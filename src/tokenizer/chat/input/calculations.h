// Calculations in what an assistant says: parts of the types "python" (an expression) and "python_output" (its result)
// among those of the type "text", or in one text as GSM8K and plain clients write them, <<12/60=0.2>>.
#pragma once

#include <string_view>

#include "base/json.h"

namespace mxt::tokenizer {

// Whether a content holds such parts.
bool has_calculations(const OrderedJson& content);

// The parts of a text in which <<expression=result>> stands, the expression one that the calculator would take: digits,
// + - * / . ( ) and spaces and commas, or with quotes and letters one that counts ('berry'.count('r')). Null where
// there is none: then it is a text.
OrderedJson split_calculations(std::string_view text);

}  // namespace mxt::tokenizer
