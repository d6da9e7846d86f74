// Section `eval`. The section absent = the stage is off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mxt::config {

struct Harness {
  std::vector<std::string> tasks = {"mmlu", "gsm8k", "ifeval", "humaneval"};
  std::optional<int64_t> fewshot;  // absent = the task's own number
  std::optional<int64_t> limit;
  std::optional<std::string> task_path;  // folder of task YAML
};

struct Regression {
  std::string baseline;         // model id, folder or results file; "" = off
  double threshold_pct = -1.0;  // percent change allowed; negative = a drop
};

// Answers of the trained model to the held-out rows (synth's test rows, or data.eval_path), compared with the rows'
// own: exact match, and for tool calls valid JSON, right name, right arguments.
struct Generation {
  int64_t limit = 60;  // rows
  int64_t max_tokens = 128;
};

struct Eval {
  Harness harness;
  Regression regression;
  std::optional<Generation> generation;        // filled where data.source is synth or data.eval_path is given
  std::optional<std::string> perplexity_path;  // text file whose perplexity is reported before and after training
};

}  // namespace mxt::config
