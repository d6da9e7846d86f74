// The recipe's rows, written for another trainer: read, cleaned and brought into one shape here, so that a target needs
// to know one spelling of each kind of row.
#pragma once

#include <functional>
#include <string>

#include "config/recipe.h"
#include "data/prepare.h"
#include "export/target.h"

namespace mxt::exporting {

// What the rows will be, by the first of them. A data set of the Hub is left to the target: its form is what the method
// asks for. Errors: as data::prepare().
Rows describe_rows(const config::Recipe& recipe, const data::Access& access, const std::string& folder);

// Writes the target's two files (train.jsonl, test.jsonl) into the folder that describe_rows() was given, whole or not
// at all; nothing for the Hub's. Errors (kBadInput): a row of another form than the first.
void write_rows(const config::Recipe& recipe, const data::Access& access, const Rows& rows, const Target& target);

// The same out of a folder that `dataset prep` made: finished tokens, a document a row. Errors (kMissing): a method
// whose rows are more than documents.
Rows describe_tokens(const config::Recipe& recipe, const std::string& folder);
void write_tokens(const config::Recipe& recipe, const std::string& prepared, const Rows& rows, const Target& target);

// A row as TRL has it: {"text"}, {"prompt", "completion"}, {"messages", "tools"}, {"prompt", "chosen", "rejected"},
// {"prompt", "completion", "label"}, {"input_ids", "labels"}.
OrderedJson trl_row(const data::Example& e, const config::Recipe& recipe);
Form form_of(const data::Example& e);

// Of a conversation: what is asked, and the last answer.
struct Turns {
  OrderedJson prompt, answer;  // lists of messages
};
Turns turns_of(const data::Example& e);

}  // namespace mxt::exporting
