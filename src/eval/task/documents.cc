#include "eval/task/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/source/records.h"
#include "data/synth/synth.h"
#include "eval/task/columns.h"
#include "eval/task/yaml.h"

namespace mxt::eval {
namespace {

const std::vector<std::string> kEndings = {".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet"};

bool is_data(std::string name) {
  for (const char* packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.resize(name.size() - std::string_view(packed).size());
  for (const std::string& e : kEndings)
    if (name.ends_with(e)) return true;
  return false;
}

// test.jsonl, test-00000-of-00001.jsonl, data/test.csv.gz
bool carries(const std::string& file, const std::string& split) {
  const std::string name = file.substr(file.rfind('/') + 1);
  return name.starts_with(split) && name.size() > split.size() &&
         (name[split.size()] == '.' || name[split.size()] == '-') && is_data(name);
}

// Options of the readers behind `datasets` that change what is read: left out, they would change the prompts.
const std::set<std::string> kReading = {
    "chunksize",        "column_names", "comment",   "converters",  "decimal",
    "delimiter",        "dtype",        "encoding",  "escapechar",  "false_values",
    "features",         "field",        "header",    "index_col",   "keep_default_na",
    "lineterminator",   "na_values",    "names",     "nrows",       "parse_dates",
    "prefix",           "quotechar",    "quoting",   "sep",         "skip_blank_lines",
    "skipinitialspace", "skiprows",     "thousands", "true_values", "usecols"};

// Where a split is there both as Parquet and as text, the text: it was put there by hand.
std::vector<std::string> of_one_kind(std::vector<std::string> files) {
  const auto packed = [](const std::string& f) { return f.ends_with(".parquet"); };
  if (!std::all_of(files.begin(), files.end(), packed)) std::erase_if(files, packed);
  return files;
}

// The `configs` of a dataset card: split → patterns, for the configuration `name` ("" = default or the only one).
std::map<std::string, std::vector<std::string>> card(const std::string& folder, const std::string& name) {
  std::map<std::string, std::vector<std::string>> out;
  const std::string path = folder + "/README.md";
  if (!fs::exists(path)) return out;
  const std::string text = read_file(path);
  if (!text.starts_with("---\n")) return out;
  const size_t end = text.find("\n---", 3);
  if (end == std::string::npos) return out;
  OrderedJson head;
  try {
    head = parse_task_yaml(text.substr(4, end - 3), path);
  } catch (const Error&) {
    return out;  // a card is a courtesy
  }
  if (!head.contains("configs") || !head["configs"].is_array()) return out;
  for (const OrderedJson& c : head["configs"]) {
    if (!c.is_object() || !c.contains("data_files")) continue;
    const std::string config = c.value("config_name", "default");
    if (name.empty() ? (config != "default" && head["configs"].size() > 1) : config != name) continue;
    const OrderedJson& files = c["data_files"];
    auto put = [&](const std::string& split, const OrderedJson& patterns) {
      if (patterns.is_string()) out[split].push_back(patterns);
      if (patterns.is_array())
        for (const OrderedJson& p : patterns)
          if (p.is_string()) out[split].push_back(p);
    };
    if (files.is_array() && !files.empty() && files[0].is_object())
      for (const OrderedJson& f : files) put(f.value("split", "train"), f.value("path", OrderedJson()));
    else
      put("train", files);
  }
  return out;
}

constexpr std::string_view kSynth = "synth";
constexpr int64_t kMadeRows = 100;

Table read_table(const std::vector<std::string>& files) {
  Table t;
  std::unordered_set<std::string> known;
  bool cells = false, texts = false;  // of files without types of their own
  auto column = [&](const std::string& name) {
    if (known.insert(name).second) t.columns.push_back(name);
  };
  for (const std::string& file : files)
    for (const data::SourceFile& source : data::find_source_files(file, "train")) {
      auto reader = data::open_records(source);
      data::Record r;
      while (reader->next(&r)) {
        OrderedJson row = OrderedJson::object();
        if (r.header) {
          cells = true;
          for (size_t i = 0; i < r.header->size(); ++i) {
            column((*r.header)[i]);
            row[(*r.header)[i]] = r.cells[i];
          }
        } else {
          texts = texts || source.kind != data::FileKind::kParquet;
          row = parse_ordered_json(r.text, r.where());
          if (!row.is_object()) fail_input("{}: a document is a JSON object", r.where());
          for (const auto& [k, v] : row.items()) column(k);
        }
        t.rows.push_back(std::move(row));
      }
    }
  put_in_order(t);
  if (cells)
    type_csv_columns(t);
  else if (texts)
    type_json_columns(t);
  return t;
}

}  // namespace

Dataset::Dataset(const OrderedJson& config, const std::vector<std::string>& folders) : folders_(folders) {
  auto text = [&](const char* key) {
    const auto it = config.find(key);
    return it != config.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  task_ = text("task");
  path_ = text("dataset_path");
  name_ = text("dataset_name");
  if (config.contains("custom_dataset") && !config["custom_dataset"].is_null())
    fail_missing("task {}: custom_dataset is Python code; name a dataset_path", task_);
  if (path_.empty()) fail_input("task {}: dataset_path is missing", task_);
  kwargs_ = config.value("dataset_kwargs", OrderedJson());
  if (kwargs_.is_object())
    for (const auto& [key, value] : kwargs_.items())
      if (kReading.contains(key))
        fail_missing("task {}: dataset_kwargs.{} is not supported here: write the documents as plain JSON lines", task_,
                     key);
}

std::vector<std::string> Dataset::files_of(const std::string& split) const {
  std::vector<std::string> tried;
  // Files that the task names itself.
  if (kwargs_.is_object() && kwargs_.contains("data_files")) {
    OrderedJson named = kwargs_["data_files"];
    if (named.is_object())
      named = named.contains(split) ? named[split] : OrderedJson();
    else if (split != "train")
      named = nullptr;
    if (named.is_string()) named = OrderedJson::array({named});
    if (named.is_null()) fail_input("task {}: dataset_kwargs.data_files has no split {}", task_, split);
    std::vector<std::string> out;
    for (const OrderedJson& n : named) {
      std::string file = n.get<std::string>(), local = file;
      if (const size_t scheme = file.find("://");
          scheme != std::string::npos) {  // hf://datasets/owner/name/data/file.jsonl
        local = file.substr(scheme + 3);
        if (local.starts_with("datasets/")) local = local.substr(9);
      }
      std::vector<std::string> places;
      if (local == file) places.push_back(file);
      const std::string base = path_ == "json" || path_ == "csv" || path_ == "text" ? "" : path_ + "/";
      for (const std::string& f : folders_) {
        places.push_back(f + "/" + base + local);
        places.push_back(f + "/" + local.substr(local.rfind('/') + 1));
      }
      if (local == file && !base.empty()) places.push_back(base + local);
      std::vector<std::string> found;
      for (const std::string& p : places)
        if (found = glob_files(p); !found.empty()) break;
      if (found.empty())
        fail_missing("task {}: the data file {} is not here; download it and give its folder with --data-dir", task_,
                     file);
      out.insert(out.end(), found.begin(), found.end());
    }
    return out;
  }
  // A folder, or a Hub dataset that was put into one.
  std::vector<std::string> roots;
  const std::string last = path_.substr(path_.rfind('/') + 1);
  for (const std::string& f : folders_) {
    roots.push_back(f + "/" + path_);
    roots.push_back(f + "/" + last);
    roots.push_back(f + "/" + task_);
  }
  roots.push_back(path_);
  for (const std::string& root : roots) {
    if (fs::is_regular_file(root)) {
      if (split == "train") return {root};
      continue;
    }
    if (!fs::is_directory(root)) continue;
    const auto configured = card(root, name_);
    if (const auto it = configured.find(split); it != configured.end()) {
      std::vector<std::string> out;
      for (const std::string& pattern : it->second)
        for (const std::string& f : glob_files(root + "/" + pattern))
          if (is_data(f)) out.push_back(f);
      if (!out.empty()) return of_one_kind(out);
    }
    for (const std::string& folder : {root + "/" + name_, root}) {
      if (name_.empty() && folder != root) continue;
      if (!fs::is_directory(folder)) continue;
      std::vector<std::string> named, unnamed;
      for (const std::string& f : list_files(folder)) {
        if (carries(f, split))
          named.push_back(folder + "/" + f);
        else if (is_data(f))
          unnamed.push_back(folder + "/" + f);
      }
      if (!named.empty()) return of_one_kind(named);
      if (unnamed.empty()) continue;
      unnamed = of_one_kind(unnamed);
      const bool usual = split == "train" || split == "validation" || split == "test";
      if (usual) {  // names that carry the split's other words ("dev.csv"), or one file without a split
        try {
          std::vector<std::string> out;
          for (const data::SourceFile& s : data::find_source_files(folder, split)) out.push_back(s.path);
          return out;
        } catch (const Error&) {
        }
      }
      if (unnamed.size() == 1) return unnamed;  // HumanEval.jsonl.gz: one file is the one split
      tried.push_back(folder);
    }
    tried.push_back(root);
  }
  const std::string place = (folders_.empty() ? std::string("DIR") : folders_[0]) + "/" + path_;
  fail_missing(
      "task {}: split {} of the dataset {}{} is not here; put {}.jsonl (or .json, .csv, .parquet) into {}{} {}", task_,
      split, path_, name_.empty() ? "" : " (" + name_ + ")", split, place, name_.empty() ? "" : "/" + name_,
      folders_.empty() ? "and give --data-dir DIR" : "");
}

// Rows of data/synth: dataset_name is the task, dataset_kwargs may say `rows` and `seed`.
Table Dataset::made(const std::string& split) const {
  const auto number = [&](const char* key, int64_t otherwise) {
    if (!kwargs_.is_object() || !kwargs_.contains(key)) return otherwise;
    if (!kwargs_[key].is_number_integer() || kwargs_[key] < 1 || kwargs_[key] > 1'000'000)
      fail_input("task {}: dataset_kwargs.{} is a whole number from 1 to 1000000", task_, key);
    return kwargs_[key].get<int64_t>();
  };
  if (split != "test" && split != "train")
    fail_input("task {}: of dataset_path synth there are the splits train and test, not {}", task_, split);
  Table t;
  t.columns = {"system", "question", "answer", "tools", "calls"};
  const data::Split part = split == "test" ? data::Split::kTest : data::Split::kTrain;
  const auto seed = static_cast<uint64_t>(number("seed", 2048));
  for (const data::SynthRow& row : data::synth_rows(name_, part, number("rows", kMadeRows), seed))
    t.rows.push_back({{"system", row.system},
                      {"question", row.user},
                      {"answer", row.answer},
                      {"tools", row.tools},
                      {"calls", row.calls}});
  return t;
}

const Table& Dataset::split(const std::string& name) {
  const auto it = tables_.find(name);
  if (it != tables_.end()) return it->second;
  if (path_ == kSynth) return tables_[name] = made(name);
  Table t = read_table(files_of(name));
  if (t.rows.empty()) fail_input("task {}: split {} has no documents", task_, name);
  return tables_[name] = std::move(t);
}

}  // namespace mxt::eval
