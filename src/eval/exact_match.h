// Held-out requests answered by the model, greedily, and compared with the rows' own answers.
#pragma once

#include <cstdint>
#include <functional>
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

// The calculator computes what answers ask of it, and stands in them as <<12/60=0.2>> (infer/calculator.h).
//
// Answers and how many are right: equal to the rows' own but for white space at their ends, or with their final number
// (infer/final_answer.h).
struct Tally {
  int64_t rows = 0, exact = 0, right = 0;
  double share() const { return rows > 0 ? static_cast<double>(exact) / static_cast<double>(rows) : 0; }
};

struct ExactMatch : Tally {  // of the greedy answers
  Tally sampled;
  struct Sample {
    std::string question, expected, got;
    bool exact;
    std::vector<int32_t> prompt{}, ids{};  // what was read and said, the end of the turn too
  };
  std::vector<Sample> samples;
};

// What a question becomes.
struct Asked {
  std::vector<int32_t> ids;
  std::shared_ptr<const infer::Shown> shown;  // its pictures; null: none
};

struct AnswerSettings {
  int64_t max_tokens = 128;
  int64_t samples = 0;                                         // of each question, at temperature 1
  uint64_t seed = 0;                                           // theirs
  std::function<Asked(const OrderedJson& messages)> ask = {};  // of a model that sees; empty: encode_prompt()
};

// Token ids of a conversation up to and including the generation prompt; control tokens in message text are plain text.
std::vector<int32_t> encode_prompt(const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                                   const OrderedJson& messages);

ExactMatch exact_match(infer::Model& model, const tokenizer::Tokenizer& tok, const tokenizer::ChatTemplate& chat,
                       const std::vector<Question>& questions, const AnswerSettings& settings,
                       StopFlag stop = nullptr);  // kInterrupted once it is set

}  // namespace mxt::eval
