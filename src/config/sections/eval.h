// Section `eval`. The section absent = the stage is off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

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

// Answers of the trained model to a synth task's test rows: right where they are the rows' own, letter by letter.
struct Generation {
  int64_t limit = 60;  // rows
  int64_t max_tokens = 128;
  Match match = Match::kExact;
  int64_t samples = 0;  // of each row, at temperature 1, beside the greedy answer
};

struct Eval {
  Harness harness;
  Regression regression;
  std::optional<Generation> generation;        // filled where data.source is synth
  std::optional<std::string> perplexity_path;  // text file whose perplexity is reported before and after training
  bool bits_per_byte = false;                  // of the held-out rows, before and after
  std::optional<std::string> core, chat_core;  // folders of CORE's and ChatCORE's tasks
};

}  // namespace mxt::config
