// The documents of a task: rows of local JSON, JSONL or CSV files as the datasets library would give them, or rows that
// the program makes (dataset_path: synth, dataset_name: a task of data/synth; dataset_kwargs: rows, seed).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

struct Table {
  std::vector<std::string> columns;  // in the order of their first appearance
  std::vector<OrderedJson> rows;     // objects with every column; null where a row has none
};

class Dataset {
 public:
  // dataset_path, dataset_name and dataset_kwargs of a task. `folders`: where data of Hub datasets was put
  // (FOLDER/openai/gsm8k, FOLDER/gsm8k or a folder of the task's name). Nothing is read yet.
  Dataset(const OrderedJson& config, const std::vector<std::string>& folders);
  // A split by the task's name for it. Errors: kMissing where the data is not here, naming what to put where; kBadInput
  // where it cannot be read.
  const Table& split(const std::string& name);

 private:
  Table made(const std::string& split) const;
  std::vector<std::string> files_of(const std::string& split) const;
  std::string task_, path_, name_;
  OrderedJson kwargs_;
  std::vector<std::string> folders_;
  std::map<std::string, Table> tables_;
};

}  // namespace mxt::eval
