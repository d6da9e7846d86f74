// What stands between a turn of a model that calls tools and its next turn: the results, as its chat template shows
// them, and the beginning of the next turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infer/calls.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::infer {

class ToolTurn {
 public:
  // `most`: tokens of a result. Errors (kBadInput): the template takes no calls or
  // results, or its turns cannot be told apart.
  ToolTurn(std::shared_ptr<const tokenizer::Tokenizer> tok, std::shared_ptr<const tokenizer::ChatTemplate> chat,
           int64_t most);
  // A result as the model is to read it: what is longer than `most` tokens is cut.
  std::string cut(const std::string& result) const;
  // Token ids that follow the end of a turn with these calls; a result each, as cut() gives it.
  std::vector<int32_t> after(std::span<const Call> calls, std::span<const std::string> results) const;

 private:
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::shared_ptr<const tokenizer::ChatTemplate> chat_;
  int64_t most_;
};

}  // namespace mxt::infer
