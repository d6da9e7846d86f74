// Python functions that task files name with `!function`, for the tasks whose functions this program has. A function
// counts as known when its file is the one it was written after (by SHA-256), or is not there at all (tasks in the
// binary).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "eval/task/documents.h"

namespace mxt::eval {

// Metric → value of one document: a number, a pair for aggregations that need two, or a list.
using DocMetrics = std::vector<std::pair<std::string, OrderedJson>>;

struct TaskFunction {
  std::function<void(Table&)> process_docs;
  std::function<OrderedJson(const OrderedJson& doc)> of_doc;  // doc_to_text, _target, _choice
  std::function<DocMetrics(const OrderedJson& doc, const std::vector<OrderedJson>& results)>
      results;  // process_results
  std::function<double(const std::vector<OrderedJson>& items)> aggregate;
  std::function<OrderedJson(const std::vector<OrderedJson>& responses, const OrderedJson& doc)>
      filter;              // filter_fn of "custom"
  bool pass_at_k = false;  // runs programs: score/code.h
};

// Errors (kMissing): not one of the known functions, or its file differs from the known one; both name the task's key.
const TaskFunction& known_function(const OrderedJson& function, const std::string& where);

}  // namespace mxt::eval
