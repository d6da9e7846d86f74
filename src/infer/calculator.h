// nanochat's calculator (its engine.py): what a model writes between python_start and python_end is computed, and the
// result forced as output_start, result, output_end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "infer/tool.h"
#include "tokenizer/tokenizer.h"

namespace mxt::infer {

// The value of an expression as Python's str() writes it, nothing where there is none. Commas are removed first. Then
// either a sum: digits + - * / // ( ) . and spaces, no **, by Python's rules (/ of whole numbers is a fraction, //
// rounds down), division by zero has no value, nor have whole numbers of more than 33 digits; or a count in a text:
// 'strawberry'.count('r'), also with lower(), upper(), strip() and the like before it, and with none of the words that
// nanochat refuses. Nothing is ever executed.
std::optional<std::string> calculate(std::string_view expression);

// Null where the vocabulary has not the four control tokens. `tok` must outlive it.
std::shared_ptr<Tool> make_calculator(const tokenizer::Tokenizer& tok);

// Calculations as people read them: <<12/60=0.2>> for the control tokens, and <<12/0>> where there was no result.
class CalculationMarks {
 public:
  explicit CalculationMarks(const tokenizer::Tokenizer& tok);
  std::string before(int32_t id);  // what stands in the token's place, if it is one of these, else before its text
  std::string finish();

 private:
  int32_t begin_, end_, result_, close_;  // −1 where the vocabulary has none
  enum class At : uint8_t { kText, kExpression, kExpressionEnd, kResult } at_ = At::kText;
};

// The answer's text: without control tokens, calculations as above.
std::string answer_text(const tokenizer::Tokenizer& tok, std::span<const int32_t> ids);

}  // namespace mxt::infer
