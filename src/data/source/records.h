// Raw rows of the source files, in order, with bounded memory: nothing is parsed here beyond finding where a row ends,
// so that parsing and tokenizing can run on all threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/input.h"

namespace mxt::data {

enum class FileKind { kJsonLines, kJson, kCsv, kTsv, kText, kParquet };
const char* name_of(FileKind kind);

struct SourceFile {
  std::string path;
  FileKind kind;
  std::string split = "train";  // of a JSON file that holds several: {"train": [{…}, …], "test": [{…}, …]}
};

// The files of a local source, sorted by byte value: a file, a folder (all files of known kinds below it; where names
// carry splits, as in train.jsonl beside test.jsonl, only those of `split`) or a glob. Kinds by ending, .gz and .zst
// removed: .jsonl .ndjson; .json; .csv; .tsv; .txt .text .md; .parquet. Errors (kBadInput): nothing there, an unknown
// ending (a named file), no file of the split.
std::vector<SourceFile> find_source_files(const std::string& path, const std::string& split);

// The files of a path that names some, a pattern or a single one. Errors (kBadInput): none there, no regular file, a
// name that is no line of UTF-8.
std::vector<std::string> find_named_files(const std::string& path);
// A name goes into JSON and into messages of one line.
void check_file_name(const std::string& path);

// The kind that a name's ending says; none for an unknown one.
std::optional<FileKind> kind_of(std::string_view path);
// The files of a split, by their names and folders as the datasets library reads them: NAME-00000-of-00003 is of split
// NAME; elsewhere a word of its own says train, validation or test or one of their other names ("my_dev.csv",
// "test/a.jsonl"), and a split of another name is how a file's or a folder's name begins. Errors (kBadInput): a slice
// or a sum of splits.
struct SplitPaths {
  std::vector<size_t> files;    // indexes into `paths`
  std::set<std::string> there;  // the splits that names carry
};
// Of …/NAME-00000-of-00003…: NAME, and how many files there are of it; none for other names.
struct ShardName {
  std::string name;
  size_t count = 0;
};
std::optional<ShardName> shard_of(std::string_view path);
SplitPaths paths_of_split(const std::vector<std::string>& paths, const std::string& split);
void check_split(const std::string& split);
// The first bytes of a file, as they stand.
std::string read_head(const std::string& path, size_t bytes);

struct Record {
  FileKind kind = FileKind::kJsonLines;
  std::string text;                                        // JSON text of the row, or plain text
  std::vector<std::string> cells;                          // CSV: the values, as many as `header`
  std::shared_ptr<const std::vector<std::string>> header;  // CSV: the column names
  std::shared_ptr<const std::string> path;
  uint64_t line = 0;          // where the row begins, from 1; of a table: its number
  bool last_piece = true;     // plain text comes in pieces; true for the last of a file
  bool alone = false;         // JSON: all that stands in the file
  std::string where() const;  // "path:line", of a table "path: row N"
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual bool next(Record* out) = 0;        // false at the end; errors name file and line
  virtual double done() const { return 0; }  // about how much has been read, 0 to 1
};

// One file. Blank lines between rows are passed over.
//   JSON lines  one value a line
//   JSON        an array of rows, or rows one after another
//   CSV         RFC 4180 with a header line; LF or CRLF; strict: a stray quote or another number of cells is an error
//   Parquet     by DuckDB (data/source/table.h)
//   text        pieces of about a MiB, cut after a line end that a non-space follows (always a boundary between tokens)
std::unique_ptr<RecordReader> open_records(const SourceFile& file, const SourceLimits& limits = {});

}  // namespace mxt::data
