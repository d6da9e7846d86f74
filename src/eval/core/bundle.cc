// Reading a bundle: everything in it is from outside.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/source/records.h"
#include "eval/core/core.h"
#include "eval/python/random.h"
#include "eval/task/yaml.h"

namespace mxt::eval {
namespace {

using TaskType = CoreTask::Type;

// eval_meta_data.csv: label → percent.
std::map<std::string, double> read_baselines(const std::string& path) {
  std::map<std::string, double> out;
  const auto rows = data::open_records({path, data::FileKind::kCsv});
  data::Record r;
  while (rows->next(&r)) {
    const auto column = [&](const char* name) {
      const auto at = std::find(r.header->begin(), r.header->end(), name);
      if (at == r.header->end()) fail_input("{}: has no column \"{}\"", path, name);
      return r.cells[static_cast<size_t>(at - r.header->begin())];
    };
    const std::string text(trim(column("Random baseline")));
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    // Rows of other tasks may leave it open: it is asked for by label.
    if (!text.empty() && *end == '\0' && std::isfinite(value) && value >= 0 && value < 100)
      out[column("Eval Task")] = value;
  }
  return out;
}

std::string yaml_text(const OrderedJson& task, const char* key, const std::string& where) {
  const auto it = task.find(key);
  if (it == task.end() || !it->is_string() || it->get<std::string>().empty())
    fail_input("{}: {} is missing or no text", where, key);
  return *it;
}

TaskType type_of(const std::string& name, const std::string& where) {
  if (name == "multiple_choice") return TaskType::kMultipleChoice;
  if (name == "schema") return TaskType::kSchema;
  if (name == "language_modeling") return TaskType::kLanguageModeling;
  fail_input("{}: icl_task_type \"{}\" is none of multiple_choice, schema, language_modeling", where, name);
}

void check_text(const OrderedJson& item, const char* key, const std::string& where) {
  if (!item.contains(key) || !item[key].is_string()) fail_input("{}: \"{}\" is missing or no text", where, key);
}

void check_choices(const OrderedJson& item, const char* key, const std::string& where) {
  const auto it = item.find(key);
  const bool texts = it != item.end() && it->is_array() && !it->empty() &&
                     std::all_of(it->begin(), it->end(), [](const OrderedJson& x) { return x.is_string(); });
  if (!texts) fail_input("{}: \"{}\" is missing or no list of texts", where, key);
  const auto gold = item.find("gold");
  if (gold == item.end() || !gold->is_number_integer() || *gold < 0 ||
      gold->get<int64_t>() >= static_cast<int64_t>(it->size()))
    fail_input("{}: \"gold\" is no index of \"{}\"", where, key);
}

void check_item(const OrderedJson& item, TaskType type, const std::string& where) {
  if (!item.is_object()) fail_input("{}: is no object", where);
  if (type == TaskType::kMultipleChoice) {
    check_text(item, "query", where);
    check_choices(item, "choices", where);
  } else if (type == TaskType::kSchema) {
    check_text(item, "continuation", where);
    check_choices(item, "context_options", where);
  } else {
    check_text(item, "context", where);
    check_text(item, "continuation", where);
  }
}

std::vector<OrderedJson> read_items(const std::string& path, TaskType type) {
  std::vector<OrderedJson> items;
  const auto rows = data::open_records({path, data::FileKind::kJsonLines});
  data::Record r;
  while (rows->next(&r)) {
    items.push_back(parse_ordered_json(r.text, r.where()));
    check_item(items.back(), type, r.where());
  }
  if (items.empty()) fail_input("{}: holds no item", path);
  return items;
}

CoreTask read_bundle_task(const OrderedJson& t, const std::string& folder, const std::string& where,
                          const std::map<std::string, double>& baselines, int64_t limit) {
  CoreTask task;
  if (!t.is_object()) fail_input("{}: is no map", where);
  task.label = yaml_text(t, "label", where);
  const std::string named = fmt::format("{} (label {})", where, task.label);
  task.type = type_of(yaml_text(t, "icl_task_type", named), named);
  const auto shots = t.find("num_fewshot");
  if (shots == t.end() || !shots->is_array() || shots->empty() || !(*shots)[0].is_number_integer() || (*shots)[0] < 0)
    fail_input("{}: num_fewshot is missing or no list of numbers", named);
  task.shots = (*shots)[0].get<size_t>();
  if (t.contains("continuation_delimiter")) {
    if (!t["continuation_delimiter"].is_string()) fail_input("{}: continuation_delimiter is no text", named);
    task.delimiter = t["continuation_delimiter"];
  }
  const auto baseline = baselines.find(task.label);
  if (baseline == baselines.end())
    fail_input("{}: eval_meta_data.csv has no \"Random baseline\" for it (0 to below 100)", named);
  task.baseline = baseline->second;
  const std::string uri = yaml_text(t, "dataset_uri", named);
  const fs::path inside = fs::path(uri).lexically_normal();
  if (inside.is_absolute() || inside.string().starts_with(".."))
    fail_input("{}: dataset_uri \"{}\" leaves the bundle", named, uri);
  task.source = (fs::path(folder) / "eval_data" / inside).string();
  if (!fs::is_regular_file(task.source)) fail_input("{}: {} is not there", named, task.source);
  task.items = read_items(task.source, task.type);
  PythonRandom(1337).shuffle(task.items);
  if (limit > 0 && static_cast<size_t>(limit) < task.items.size()) task.items.resize(static_cast<size_t>(limit));
  if (task.shots >= task.items.size())
    fail_input("{}: wants {} examples before each item and has {} items{}", named, task.shots, task.items.size(),
               limit > 0 ? " with this --limit" : "");
  return task;
}

}  // namespace

std::vector<CoreTask> read_core_bundle(const std::string& folder, int64_t limit) {
  const std::string config = folder + "/core.yaml", meta = folder + "/eval_meta_data.csv";
  for (const std::string& file : {config, meta})
    if (!fs::is_regular_file(file))
      fail_missing(
          "{}: is not there: --core takes nanochat's eval bundle, a folder with core.yaml, eval_meta_data.csv and "
          "eval_data/",
          file);
  const OrderedJson yaml = load_task_yaml(config);
  const auto tasks = yaml.find("icl_tasks");
  if (tasks == yaml.end() || !tasks->is_array() || tasks->empty())
    fail_input("{}: icl_tasks is missing or no list", config);
  const std::map<std::string, double> baselines = read_baselines(meta);
  std::vector<CoreTask> out;
  for (size_t i = 0; i < tasks->size(); ++i) {
    out.push_back(read_bundle_task((*tasks)[i], folder, fmt::format("{}: icl_tasks[{}]", config, i), baselines, limit));
    for (size_t k = 0; k < i; ++k)
      if (out[k].label == out[i].label) fail_input("{}: icl_tasks[{}]: label {} stands twice", config, i, out[i].label);
  }
  return out;
}

}  // namespace mxt::eval
