// Results as files and as a table.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "eval/evaluate.h"
#include "eval/python/literal.h"

namespace mxt::eval {

void write_samples(const Evaluation& e, const std::string& folder, const std::string& suffix) {
  for (const TaskSamples& t : e.samples) {
    std::string name = t.task;
    std::replace_if(name.begin(), name.end(), [](char c) { return c == '/' || c == '\\' || c == ':'; }, '_');
    AtomicFile file(folder + "/samples_" + name + suffix + ".jsonl");
    for (const OrderedJson& s : t.samples) file.write(json_text(s) + "\n");
    file.commit();
  }
}

std::string write_results(const Evaluation& e, const std::string& folder, const std::string& stamp) {
  make_folders(folder);
  const std::string suffix = stamp.empty() ? "" : "_" + stamp;
  write_samples(e, folder, suffix);
  const std::string path = folder + "/results" + suffix + ".json";
  write_file_atomic(path, e.results.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  return path;
}

std::string results_table(const OrderedJson& r) {
  std::vector<std::vector<std::string>> rows = {{"task", "filter", "shots", "metric", "", "value", "", "stderr"}};
  for (const auto& [name, metrics] : r["results"].items()) {
    std::string shown = name;
    for (const auto& [key, value] : metrics.items()) {
      const size_t comma = key.find(',');
      if (comma == std::string::npos || key.substr(0, comma).ends_with("_stderr")) continue;
      const std::string metric = key.substr(0, comma), filter = key.substr(comma + 1);
      const OrderedJson error = metrics.value(metric + "_stderr," + filter, OrderedJson());
      const auto better = r["higher_is_better"].find(name);
      std::string arrow;
      if (better != r["higher_is_better"].end() && better->contains(metric))
        arrow = (*better)[metric].get<bool>() ? "↑" : "↓";
      rows.push_back({shown, filter, r["n-shot"].contains(name) ? r["n-shot"][name].dump() : "", metric, arrow,
                      value.is_number() ? fmt::format("{:.4f}", value.get<double>()) : python_str(value), "±",
                      error.is_number() ? fmt::format("{:.4f}", error.get<double>()) : "N/A"});
      shown.clear();
    }
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters(row[c]));
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      line += row[c];
      if (c + 1 < row.size()) line += std::string(widths[c] - characters(row[c]) + 2, ' ');
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace mxt::eval
