// From an example to its tokens and labels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/coder.h"
#include "data/pictures.h"
#include "data/shape/example.h"

namespace mxt::data {

// A tokenized example, or a piece of a plain-text file. Of a preference pair both answers with their prompt, one after
// the other: they stay together, as two documents of one row.
struct Document {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;                 // empty = all trained (labels are the ids)
  size_t second = 0;                           // where the second sequence of a pair begins; 0 = there is one
  int32_t mark = 0;                            // of a labelled answer: 1 good, -1 bad
  std::vector<DocumentPicture> pictures = {};  // in the order of their tokens
};

struct EncodeRules {
  bool train_all = false;                  // chats too: every token, not the assistant's alone
  bool begin_text = true;                  // text begins with what the tokenizer puts before one, a BOS
  bool end_text = true;                    // text ends with the end-of-text token where the tokenizer has one
  bool bos_text = false;                   // instead of both: text begins with the BOS
  bool parts = false;                      // labels say what part of a tool call a token is (dataset.h)
  const PictureStore* pictures = nullptr;  // where pixels go; null: rows have no pictures
  bool alone = false;                      // of a pair each answer begins where it does beside its prompt alone
};

// What is trained: a chat's assistant turns, the completion (and the end token after it), all of a text (texts and
// prompts begin as the tokenizer lets them begin, chats as their template does), the labels of finished tokens as they
// stand. Errors (kBadInput) start with `where`: a chat without a chat template, ids outside the vocabulary, what the
// template refuses.
Document encode_example(const Example& example, const SampleEncoder& coder, const EncodeRules& rules,
                        const std::string& where);

// pair.cc: a pair's two answers after one prompt, or a labelled answer. The prompt's tokens are those that both
// sequences begin with and neither trains: a token that joins prompt and answer belongs to the answer, of both where it
// does so in one (without `alone`). Errors: as encode_example; prompts that differ.
Document encode_answers(const Example& example, const SampleEncoder& coder, const EncodeRules& rules,
                        const std::string& where);

// pair.cc. Errors (kBadInput): the row holds no prompt with an answer.
void require_answer(const Example& example, const std::string& where);

// pair.cc: a prompt to sample answers to, and the answer that they are measured against, as the second sequence; all of
// it is marked as trained, since nothing is. Errors: no answer in the row, a conversation without a template.
Document encode_prompt(const Example& example, const SampleEncoder& coder, const EncodeRules& rules,
                       const std::string& where);

// Errors (kBadInput): one of a column's ids is outside the model's vocabulary.
void check_ids(std::span<const int32_t> ids, std::string_view column, const SampleEncoder& coder,
               const std::string& where);

// What is not used of a row at `where`: the first of each kind is named, the others are counted.
void warn_row(const SampleEncoder& coder, const std::string& kind, const std::string& text, const std::string& where);
// The same for what the rendered chat has nothing of.
void say_notes(const RenderedChat& chat, const SampleEncoder& coder, const std::string& where);

// Keeps the first `seq_len` tokens of each sequence; a picture is never cut: it goes with all that follows. Returns how
// many tokens were cut.
int64_t cut(Document& document, int64_t seq_len);
// Without what a sequence has behind its last trained token (a template's newline after the end of a turn): for who
// judges sequences by their ends, which sampled ones must share.
void end_at_targets(Document& document);
// The two answers of a pair as labelled ones, the chosen one good.
std::pair<Document, Document> unpair(const Document& pair);

// Positions that have a loss: labels other than kNoTarget after the first token.
int64_t count_targets(const Document& document);

}  // namespace mxt::data
