// Rows that DuckDB reads: Parquet files, and the result of `data.sql` over files of rows.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/source/records.h"

namespace mxt::data {

// One Parquet file, in its order. A record is the row as JSON, `line` its number from 1; absent and null are one thing
// in a table, so FileKind::kParquet tells the parser to take nulls inside objects for absent. Not-a-numbers of
// top-level columns are null.
std::unique_ptr<RecordReader> open_parquet(const SourceFile& file, const SourceLimits& limits);

// `sql` is one SELECT over the table `rows`, which holds all `files` one after another. Columns: of Parquet its own; of
// CSV and TSV all text, as written; of JSON texts (dates too), numbers and booleans as such, everything nested as JSON
// that comes out as it went in. Rows come in the order of the query (without ORDER BY, of the files).
//
// The statement is hostile input: it may read the given files and nothing else (no other file, no network, no
// extension, no setting), it cannot write, and its memory is bounded; what does not fit goes to files in `temp_folder`.
// Errors (kBadInput): not one SELECT, what DuckDB says of it, text files among `files`. kMissing without DuckDB.
std::unique_ptr<RecordReader> open_query(const std::string& sql, std::span<const SourceFile> files,
                                         const std::string& temp_folder, const SourceLimits& limits = {});

}  // namespace mxt::data
