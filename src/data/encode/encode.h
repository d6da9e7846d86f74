// From an example to its tokens and labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/coder.h"
#include "data/shape/example.h"

namespace mxt::data {

// A tokenized example, or a piece of a plain-text file.
struct Document {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;  // empty = all trained (labels are the ids)
};

struct EncodeRules {
  bool train_all = false;  // chats too: every token, not the assistant's alone
  bool begin_text = true;  // text begins with what the tokenizer puts before one, a BOS
  bool end_text = true;    // text ends with the end-of-text token where the tokenizer has one
};

// What is trained: a chat's assistant turns, the completion (and the end token after it), all of a text (texts and
// prompts begin as the tokenizer lets them begin, chats as their template does), the labels of finished tokens as they
// stand. Errors (kBadInput) start with `where`: a chat without a chat template, ids outside the vocabulary, what the
// template refuses.
Document encode_example(const Example& example, const Coder& coder, const EncodeRules& rules, const std::string& where);

// Keeps the first `seq_len` tokens. True where something was cut.
bool cut(Document& document, int64_t seq_len);

// Positions that have a loss: labels other than kNoTarget after the first token.
int64_t count_targets(const Document& document);

}  // namespace mxt::data
