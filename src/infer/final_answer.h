// What an answer to a question with a number comes to.
#pragma once

#include <string>
#include <string_view>

namespace mxt::infer {

// What stands in the text's last \boxed{}, else its last number, without thousands' commas, a trailing full stop and
// trailing zeros: of "#### 1,234.50." it is "1234.5"; "" where there is none.
std::string final_answer(std::string_view text);

}  // namespace mxt::infer
