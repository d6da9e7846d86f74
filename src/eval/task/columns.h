// The types that columns of JSON lines and CSV have in lm-evaluation-harness, whose documents come through the
// `datasets` library: pyarrow's reader of JSON (one type a column, in lists and structures too) and pandas' read_csv.
// Prompts show them: 3 beside 2.5 is 3.0.
#pragma once

#include "eval/task/documents.h"

namespace mxt::eval {

// Every row gets every column, in the table's order.
void put_in_order(Table& t);

// Whole numbers beside others become floats; columns whose texts
// are all ISO 8601 dates or times (to the second) become "2020-01-31 10:20:30", as a datetime prints, in UTC.
void type_json_columns(Table& t);

// Cells are texts. "", NA, NaN, null, None and pandas' other names of nothing become null; columns of whole numbers,
// floats or True/False those, whole numbers beside nothing floats; others stay texts.
void type_csv_columns(Table& t);

}  // namespace mxt::eval
