#include "eval/gate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mxt::eval {

std::vector<GateRow> compare_results(const OrderedJson& baseline, const OrderedJson& now, double threshold_pct) {
  std::vector<GateRow> rows;
  if (!baseline.is_object() || !baseline.contains("results") || !baseline["results"].is_object())
    fail_input("the baseline is no results file: it has no \"results\"");
  for (const auto& [task, before] : baseline["results"].items()) {
    if (!now["results"].contains(task) || !before.is_object()) continue;
    const OrderedJson& after = now["results"][task];
    const bool counted = before.contains("sample_len") && after.contains("sample_len");
    if (counted && before["sample_len"] != after["sample_len"])
      fail_input("task {}: the baseline was measured on {} documents, this run on {}: use one --limit", task,
                 before["sample_len"].dump(), after["sample_len"].dump());
    auto shots = [&](const OrderedJson& r) {
      return r.contains("n-shot") && r["n-shot"].contains(task) ? r["n-shot"][task] : OrderedJson();
    };
    if (!shots(baseline).is_null() && shots(baseline) != shots(now))
      fail_input("task {}: the baseline has {} examples, this run {}", task, shots(baseline).dump(), shots(now).dump());
    for (const auto& [key, value] : before.items()) {
      const size_t comma = key.find(',');
      if (comma == std::string::npos || key.substr(0, comma).ends_with("_stderr") || !value.is_number() ||
          !after.contains(key))
        continue;
      // What is no number is written as a text: "inf", "nan". A score that was one and no longer is has fallen.
      double measured = std::numeric_limits<double>::quiet_NaN();
      if (after[key].is_number()) measured = after[key];
      GateRow r{task, key, value, measured, 0, false};
      const std::string metric = key.substr(0, comma);
      bool up = true;
      if (now.contains("higher_is_better") && now["higher_is_better"].contains(task))
        up = now["higher_is_better"][task].value(metric, true);
      const double gain = up ? r.now - r.baseline : r.baseline - r.now;
      if (r.baseline != 0)
        r.change_pct = 100 * gain / std::fabs(r.baseline);
      else
        r.change_pct = gain == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), gain);
      r.failed = !std::isfinite(r.now) || !(r.change_pct >= threshold_pct - 1e-9);
      rows.push_back(std::move(r));
    }
  }
  if (rows.empty()) fail_input("the baseline has no score that this run has too");
  return rows;
}

bool passed(const std::vector<GateRow>& rows) {
  return std::none_of(rows.begin(), rows.end(), [](const GateRow& r) { return r.failed; });
}

std::string gate_table(const std::vector<GateRow>& rows, double threshold_pct) {
  size_t wide = 4, metric = 6;
  for (const GateRow& r : rows) wide = std::max(wide, r.task.size()), metric = std::max(metric, r.metric.size());
  std::string out =
      fmt::format("{:{}}  {:{}}  {:>12}  {:>12}  {:>9}\n", "task", wide, "metric", metric, "baseline", "now", "change");
  for (const GateRow& r : rows)
    out += fmt::format("{:{}}  {:{}}  {:>12.4f}  {:>12.4f}  {:>+8.2f}%  {}\n", r.task, wide, r.metric, metric,
                       r.baseline, r.now, r.change_pct, r.failed ? "FAILED" : "ok");
  return out + fmt::format("allowed: {:+g} % (positive = better)\n", threshold_pct);
}

}  // namespace mxt::eval
