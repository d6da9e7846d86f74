// The text of a row, as cleaning (dedupe, filter) sees it: taken straight from the row's JSON or cells, without
// building values, since it is read for every row of a source.
#pragma once

#include <string>

#include "data/shape/example.h"

namespace mxt::data {

struct RowText {
  // What the row says: the layout's columns in their order, "\n" between them; of a conversation every message's
  // content and tool calls but those of system messages. A column that is no text (token ids) stands as its JSON.
  std::string text;
  // What rows share by design: roles, system messages, tools. Equal rows are equal in both.
  std::string context;
};

// Not for plain-text files, which have no rows. Errors (kBadInput) name file and line: not valid JSON or UTF-8, no
// object. Missing columns and wrong types are left to read_example().
void read_row_text(const Record& record, const Layout& layout, RowText* out);

}  // namespace mxt::data
