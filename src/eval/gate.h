// The regression gate: scores against a baseline's.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace mxt::eval {

struct GateRow {
  std::string task, metric;  // metric with its filter, "acc,none"
  double baseline = 0, now = 0;
  double change_pct = 0;  // of the baseline, positive = better; where the baseline is 0: 0 or ±infinity
  bool failed = false;
};

// Every metric that both results files have, of tasks and groups. `threshold_pct`: change allowed; −1 fails what got
// worse by more than 1 % of the baseline, +1 what did not get better by 1 %. Errors (kBadInput): no task in common, a
// task of the baseline measured on other documents or with other examples.
std::vector<GateRow> compare_results(const OrderedJson& baseline, const OrderedJson& now, double threshold_pct);
std::string gate_table(const std::vector<GateRow>& rows, double threshold_pct);
bool passed(const std::vector<GateRow>& rows);

}  // namespace mxt::eval
