// The recipe's data section as this room uses it, and the rows it names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "config/recipe.h"
#include "data/semantic/models.h"
#include "data/source/records.h"
#include "data/synth/synth.h"

namespace mxt::data {

struct Access;

// Of a prepared folder, while it is being made.
inline constexpr const char* kWorkFolder = ".work";
inline constexpr const char* kJobsFolder = "jobs";

struct RowSource;

// Rows of a source that are cut into blocks on their own: a file; or all rows of a source that is limited, queried or
// made. Valid as long as its RowSource.
struct RowStream {
  const RowSource* source;
  std::optional<size_t> file;  // of source->files; none: all of the source
  std::unique_ptr<RecordReader> open() const;
  std::string text() const;      // for messages
  std::string identity() const;  // equal where the rows are equal, wherever they stand: kind and digest
  uint64_t bytes() const;        // about how much there is to read
};

// One source of rows: files, or a task made from a seed.
struct RowSource {
  struct Task {
    std::string name;
    Split split;
    int64_t rows, turns;  // a row is a conversation of so many requests
    uint64_t seed;
  };
  std::vector<SourceFile> files;
  std::optional<Task> task;
  std::string sql, temp_folder;  // data.sql, and where its large sorts may lie
  int64_t max_rows = INT64_MAX;
  std::map<std::string, std::string> columns;  // data.columns
  std::vector<RowSource> mixture;              // these one after another instead, each with its weight
  double weight = 1;

  std::vector<RowStream> streams() const;        // in the order of the rows
  std::unique_ptr<RecordReader> open() const;    // all rows
  std::string text() const;                      // for messages
  OrderedJson describe() const;                  // for the manifest: files with size and digest, or the task
  const FileDigests& digest(size_t file) const;  // computed once
  // Of the picture files that the rows name, each once, in their order: their number and one digest. Computed once.
  // What cannot be read is left out: whoever reads the row says so.
  OrderedJson pictures() const;

 private:
  mutable std::map<size_t, FileDigests> digests_;
  mutable std::string pictures_;
};

// What the method asks of rows: documents; pairs of answers to a prompt; answers with a label (pairs are two of these);
// prompts to sample answers to.
enum class Answers { kNone, kPairs, kLabelled, kPrompts };
Answers answers_of(const config::Method& method);

struct Settings {
  Answers answers = Answers::kNone;
  RowSource train;
  std::optional<RowSource> eval;
  int64_t seq_len, num_shards;
  bool packing, windows, train_all;
  bool alone = false;     // of a pair each answer begins where it does alone, as TRL has it for the method
  bool parts = false;     // data.loss_weights: labels say what part of a tool call a token is
  bool crop = false;      // data.pack: bos_crop
  bool best_fit = false;  // data.pack: best_fit
  bool join_row = false;  // data.boundaries: row
  double eval_fraction;
  uint64_t seed;
  config::MixtureStop mixture_stop = config::MixtureStop::kFirstExhausted;
  std::vector<std::string> eval_texts;  // of data.filter.decontaminate_eval
  std::string curation;                 // what of `dedupe` and `filter` is on, as JSON, for the manifest
  Models models;                        // that they ask for
};

// Fields of the source that the recipe's own does not look at, a line each.
std::vector<std::string> unused_fields(const config::Data& data);

// Finds the files; fetches them first where they are elsewhere. `out` (may be "") takes temporary files. Errors as
// prepare().
Settings read_settings(const config::Recipe& recipe, const Access& access, const std::string& out);

}  // namespace mxt::data
