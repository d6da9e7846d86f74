// The recipe's data section as this room uses it, and the rows it names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/recipe.h"
#include "data/semantic/models.h"
#include "data/source/records.h"
#include "data/synth/synth.h"

namespace mxt::data {

struct Access;

// Of a prepared folder, while it is being made.
inline constexpr const char* kWorkFolder = ".work";

// One source of rows: files, or a task made from a seed.
struct RowSource {
  struct Task {
    std::string name;
    Split split;
    int64_t rows;
    uint64_t seed;
  };
  std::vector<SourceFile> files;
  std::optional<Task> task;
  std::string sql, temp_folder;  // data.sql, and where its large sorts may lie
  int64_t max_rows = INT64_MAX;

  std::unique_ptr<RecordReader> open() const;
  std::string text() const;      // for messages
  OrderedJson describe() const;  // for the manifest: files with size and digest, or the task
};

struct Settings {
  RowSource train;
  std::optional<RowSource> eval;
  std::map<std::string, std::string> columns;
  int64_t seq_len, num_shards;
  bool packing, windows, train_all;
  double eval_fraction;
  uint64_t seed;
  std::string curation;  // what of `dedupe` and `filter` is on, as JSON, for the manifest
  Models models;         // that they ask for
};

// Finds the files; fetches them first where they are elsewhere. `out` (may be "") takes temporary files. Errors as
// prepare().
Settings read_settings(const config::Recipe& recipe, const Access& access, const std::string& out);

}  // namespace mxt::data
