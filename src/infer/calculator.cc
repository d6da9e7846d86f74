#include "infer/calculator.h"

#include <algorithm>
#include <vector>

#include "infer/expression.h"
#include "tokenizer/chat/nanochat.h"

namespace mxt::infer {
namespace {

bool only(std::string_view s, std::string_view alphabet) {
  return s.find_first_not_of(alphabet) == std::string_view::npos;
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return out;
}

// In nanochat these guard an interpreter; here they decide which expressions have a value.
constexpr std::string_view kRefused[] = {"__",        "import",  "exec",    "eval",    "compile", "open",
                                         "file",      "input",   "globals", "locals",  "vars",    "dir",
                                         "raw_input", "getattr", "setattr", "delattr", "hasattr"};

class Calculator : public Tool {
 public:
  Calculator(const tokenizer::Tokenizer& tok, int32_t begin, int32_t end, int32_t result, int32_t close)
      : tok_(tok), begin_(begin), end_(end), result_(result), close_(close) {}

  std::vector<int32_t> after(int32_t id) override {
    if (id == begin_) {
      inside_ = true;
      expression_.clear();
    } else if (id == end_ && inside_) {
      inside_ = false;
      const auto value = expression_.empty() ? std::nullopt : calculate(tok_.decode(expression_));
      if (!value) return {};
      const tokenizer::Span plain{0, value->size()};
      std::vector<int32_t> forced = tok_.encode(*value, {&plain, 1});
      forced.insert(forced.begin(), result_);
      forced.push_back(close_);
      return forced;
    } else if (inside_) {
      expression_.push_back(id);
    }
    return {};
  }

 private:
  const tokenizer::Tokenizer& tok_;
  int32_t begin_, end_, result_, close_;
  bool inside_ = false;
  std::vector<int32_t> expression_;
};

int32_t control(const tokenizer::Tokenizer& tok, const char* token) {
  const int32_t id = tok.id_of(token);
  return id >= 0 && tok.is_special(id) ? id : -1;
}

}  // namespace

std::optional<std::string> calculate(std::string_view given) {
  std::string expression(given);
  std::erase(expression, ',');
  if (only(expression, "0123456789*+-/.() ")) {
    if (expression.find("**") != std::string::npos) return std::nullopt;
    return sum_value(expression);
  }
  if (!only(expression, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'\"()._ ")) return std::nullopt;
  const std::string small = lower(expression);
  for (const std::string_view word : kRefused)
    if (small.find(word) != std::string::npos) return std::nullopt;
  if (expression.find(".count(") == std::string::npos) return std::nullopt;
  return count_value(expression);
}

std::shared_ptr<Tool> make_calculator(const tokenizer::Tokenizer& tok) {
  const int32_t begin = control(tok, tokenizer::kPythonStart), end = control(tok, tokenizer::kPythonEnd),
                result = control(tok, tokenizer::kOutputStart), close = control(tok, tokenizer::kOutputEnd);
  if (std::min({begin, end, result, close}) < 0) return nullptr;
  return std::make_shared<Calculator>(tok, begin, end, result, close);
}

CalculationMarks::CalculationMarks(const tokenizer::Tokenizer& tok)
    : begin_(control(tok, tokenizer::kPythonStart)),
      end_(control(tok, tokenizer::kPythonEnd)),
      result_(control(tok, tokenizer::kOutputStart)),
      close_(control(tok, tokenizer::kOutputEnd)) {
  if (std::min({begin_, end_, result_, close_}) < 0) begin_ = end_ = result_ = close_ = -1;
}

std::string CalculationMarks::before(int32_t id) {
  if (begin_ < 0) return "";
  const At was = at_;
  if (id == end_ && was == At::kExpression) {
    at_ = At::kExpressionEnd;
    return "";
  }
  if (id == result_ && was == At::kExpressionEnd) {
    at_ = At::kResult;
    return "=";
  }
  const bool closes = was == At::kExpressionEnd || (id == close_ && was == At::kResult);
  if (closes) at_ = At::kText;
  if (id == begin_ && at_ == At::kText) {
    at_ = At::kExpression;
    return closes ? ">><<" : "<<";
  }
  return closes ? ">>" : "";
}

std::string CalculationMarks::finish() {
  const bool open = at_ == At::kExpressionEnd;
  at_ = At::kText;
  return open ? ">>" : "";
}

std::string answer_text(const tokenizer::Tokenizer& tok, std::span<const int32_t> ids) {
  CalculationMarks marks(tok);
  std::string text;
  std::vector<int32_t> run;  // tokens between marks are decoded together
  const auto flush = [&] {
    text += tok.decode(run, true);
    run.clear();
  };
  for (const int32_t id : ids) {
    if (const std::string mark = marks.before(id); !mark.empty()) {
      flush();
      text += mark;
    }
    run.push_back(id);
  }
  flush();
  return text + marks.finish();
}

}  // namespace mxt::infer
