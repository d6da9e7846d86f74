// The harness: names of tasks in, scores with their standard errors out, as lm-evaluation-harness reports them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/lm/language_model.h"
#include "eval/task/task.h"

namespace mxt::eval {

struct EvaluateOptions {
  std::vector<std::string> tasks;         // names of tasks, groups and tags, or YAML files
  std::vector<std::string> task_folders;  // more task files
  std::vector<std::string> data_folders;  // where data of Hub datasets was put
  std::optional<int64_t> fewshot;
  // Also for tasks whose file says 0: the command line wins. Without it (a recipe's number) they stay at 0, as in
  // lm-evaluation-harness, which leaves them there whoever asks.
  bool fewshot_always = false;
  int64_t limit = 0;  // documents a task; 0: all
  int64_t bootstrap_iterations = 100'000;
  ContextStyle style;
  ProgramRunner run_programs;  // for tasks that run programs (code/sandbox.h)
  std::string cache;           // file of finished requests; "" = none
};

struct TaskSamples {
  std::string task;
  std::vector<OrderedJson> samples;  // one a document and filter
};

struct Evaluation {
  // Keys as in a results file: results, groups, group_subtasks, configs, versions, n-shot, higher_is_better, n-samples,
  // task_hashes.
  OrderedJson results;
  std::vector<TaskSamples> samples;
  bool finished = true;  // false: interrupted; what was computed is in the cache
};

// Reads all tasks before the model works. Errors as Task, LanguageModel; kBadInput for unknown names.
Evaluation evaluate(LanguageModel& model, const EvaluateOptions& options);

// Reads the tasks and their documents, asks nothing: what evaluate() would refuse is refused now, before a training
// run.
void check_tasks(const EvaluateOptions& options);

// A table for people: task, filter, shots, metric, value, standard error.
std::string results_table(const OrderedJson& results);

// samples_<task><suffix>.jsonl in `folder`, each atomically.
void write_samples(const Evaluation& e, const std::string& folder, const std::string& suffix);
// results_<stamp>.json and samples_<task>_<stamp>.jsonl in `folder`, each atomically, results last; without a stamp
// results.json and samples_<task>.jsonl. Returns the path of the results file.
std::string write_results(const Evaluation& e, const std::string& folder, const std::string& stamp);

}  // namespace mxt::eval
