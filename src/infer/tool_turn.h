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
  // `most`: tokens of a result, of which what is longer is cut. Errors (kBadInput): the template takes no calls or
  // results, or its turns cannot be told apart.
  ToolTurn(std::shared_ptr<const tokenizer::Tokenizer> tok, std::shared_ptr<const tokenizer::ChatTemplate> chat,
           int64_t most);
  // Token ids that follow the end of a turn with these calls; a result each.
  std::vector<int32_t> after(std::span<const Call> calls, std::span<const std::string> results) const;

 private:
  std::string cut(const std::string& result) const;
  std::shared_ptr<const tokenizer::Tokenizer> tok_;
  std::shared_ptr<const tokenizer::ChatTemplate> chat_;
  int64_t most_;
};

}  // namespace mxt::infer
