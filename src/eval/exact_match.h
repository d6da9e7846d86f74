// Held-out requests answered by the model, greedily, and compared with the rows' own answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "infer/engine.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::eval {

struct Question {
  std::string messages;  // JSON array without the answer
  std::string answer;
};

struct ExactMatch {
  int64_t rows = 0, exact = 0;
  struct Sample {
    std::string question, expected, got;
    bool exact;
  };
  std::vector<Sample> samples;
  double share() const { return rows > 0 ? static_cast<double>(exact) / static_cast<double>(rows) : 0; }
};

// Token ids of a conversation up to and including the generation prompt; control tokens in message text are plain text.
std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                                   const OrderedJson& messages);

ExactMatch exact_match(infer::Model& model, const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                       const std::vector<Question>& questions, int64_t max_tokens,
                       StopFlag stop = nullptr);  // kInterrupted once it is set

}  // namespace mxt::eval
