// The text of a row, as cleaning (dedupe, filter) sees it: taken straight from the row's JSON or cells, without
// building values, since it is read for every row of a source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/shape/example.h"

namespace mxt::data {

struct RowText {
  // What the row says: the layout's columns in their order, "\n" between them; of a conversation every message's
  // content and tool calls but those of system messages. A column that is no text (token ids) stands as its JSON.
  std::string text;
  std::vector<size_t> parts;  // where each column or message after the first begins in it
  // What rows share by design: roles, system messages, tools. Equal rows are equal in both.
  std::string context;
};

// Not for plain-text files, which have no rows. Errors (kBadInput) name file and line: not valid JSON or UTF-8, no
// object, a column that is missing or of a wrong type: what is
// dropped is checked like what stays.
void read_row_text(const Record& record, const Layout& layout, RowText* out);

// The first column's text where it can be taken straight from the row's JSON: a valid object of at most 16 plain values
// in columns that the layout knows, of which this is a text. False for all else, which read_example() parses. `out`
// must be empty.
bool read_flat_text(const Record& record, const Layout& layout, std::string* out);

}  // namespace mxt::data
