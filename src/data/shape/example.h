// Rows of the known shapes, and what each becomes: text, a prompt with its completion, a chat, or finished tokens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/source/records.h"

namespace mxt::data {

// In the order in which they are looked for: a row that has the columns of two shapes is of the first.
enum class Shape {
  kTokens,       // input_ids, labels [images]
  kTokenPair,    // prompt_ids, chosen_ids, rejected_ids
  kTokenAnswer,  // prompt_ids, completion_ids, label
  kMessages,     // messages [system] [tools] [images]  OpenAI: role, content, tool_calls
  kShareGpt,     // conversations [system] [tools] [images]  from, value; <image> where a picture stands
  kPreference,   // chosen, rejected [prompt]
  kLabelled,     // prompt, completion, label       KTO: texts or lists of messages; label: whether the answer is good
  kCompletion,   // prompt, completion [tools]      texts, or both lists of messages (as TRL has them)
  kAlpaca,       // instruction, output [input] [system] [history] [images]
  kQuestion,     // question, answer [images]       GSM8K; a picture stands before the question, or at <image>
  kReference,    // prompt, answer                  RL: a prompt and the answer it is measured against
  kText,         // text
  kCalls,        // query, answers, tools          xlam: calls as JSON text answer a query
};
std::string_view name_of(Shape shape);  // "messages", "prompt/completion", …

// Where a shape's columns stand in the rows of one data set.
struct Layout {
  Shape shape;
  std::vector<std::pair<std::string, std::string>> columns;  // our name, the row's column; required ones first
  std::vector<std::string> unused;                           // the other columns of the first row
  std::vector<std::string> missing;                          // optional columns that the first row does not have
  std::string text() const;  // "question/answer (question, answer); columns not used: id"
};

// What of a row is not used, in words; said once for each kind.
struct RowNote {
  std::string kind, text;
};

// Rows that train as one document, or a preference pair as two.
struct Example {
  enum class Kind { kText, kCompletion, kChat, kTokens } kind = Kind::kText;
  std::string text;                       // kText; kCompletion: the prompt
  std::string completion;                 // kCompletion
  std::shared_ptr<OrderedJson> messages;  // kChat: OpenAI's form
  std::shared_ptr<OrderedJson> tools;     // kChat: null where none
  size_t trained_from = 0;                // kChat: the messages before are the prompt's, context only
  std::vector<int32_t> ids, labels;       // kTokens, labels as long as ids
  std::shared_ptr<Example> rejected;      // of a pair, whose chosen answer this is
  int32_t mark = 0;                       // of a labelled answer: 1 good, -1 bad
  std::vector<std::string> pictures;      // sources, in the order of their places (data/pictures.h)
  bool picture_missing = false;           // <image> stands in its texts for one, and it has none
  std::string beside;                     // the folder of the row's file, where there are any
  std::vector<RowNote> notes;             // columns that the first row has not; members of a content's parts
};

// The layout of a data set from its first row. `columns` (data.columns) maps the row's columns to ours and then decides
// alone; else they are detected. Errors (kBadInput): no known shape (lists the columns), a column that is not there, an
// unknown name of ours (with the nearest).
Layout find_layout(const Record& first, const std::map<std::string, std::string>& columns);

// Whether the layout uses a column, or has said that it does not.
bool is_known(const Layout& layout, std::string_view column);

// One row. Errors (kBadInput) name file and line: not valid JSON or UTF-8, no object, a missing column, a wrong type.
Example read_example(const Record& record, const Layout& layout);

// The row as one text, as pretraining reads it: a question and its answer on the line after it, a prompt and its
// completion as they follow each other. Errors (kBadInput): another kind of row than these, a text or tokens.
Example as_text(Example example, const std::string& where);

}  // namespace mxt::data
