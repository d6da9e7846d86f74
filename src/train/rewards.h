// What a sampled answer is worth.
#pragma once

#include <string>
#include <string_view>

#include "config/enums.h"

namespace mxt::train {

// kAnswer: 1 where the answer's last number, or what stands in its last \boxed{}, is the reference's (thousands'
// commas, a trailing full stop and trailing zeros do not count), else 0. kExact: 1 where both texts are equal but for
// white space at their ends.
double reward_of(config::Reward kind, std::string_view answer, std::string_view reference);

// The final answer of a text as kAnswer sees it: of "#### 1,234.50." it is "1234.5"; "" where there is none.
std::string final_answer(std::string_view text);

}  // namespace mxt::train
