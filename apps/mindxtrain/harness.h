// The evaluation harness as the verbs use it: from a recipe or a command line to scores, files and the regression gate.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/types.h"
#include "config/sections/eval.h"
#include "eval/exact_match.h"
#include "model_files.h"

namespace mxt::app {

struct HarnessRequest {
  std::string model, adapter;  // resolved: folder or .gguf; PEFT folder or ""
  std::string model_name;      // as the user named it
  std::vector<std::string> tasks;
  std::string task_path, data_path;  // "" where not given; data is looked for in both, DATA first
  std::optional<int64_t> fewshot;
  bool fewshot_always = false;
  int64_t limit = 0, batch = 16, bootstrap = 100'000;
  DType type = DType::kBF16;
  std::string device = "cpu";  // as ops_on() reads it
  bool chat_template = false, multiturn = true;
  std::string system_instruction;
  std::string out;      // folder of the results
  std::string cache;    // file of finished requests; "" = OUT/requests.jsonl
  std::string inputs;   // "", or a digest of what the results depend on: results that carry it are kept
  bool stamped = true;  // dates in the files' names and contents; without them equal runs give equal files
};

// CORE over a bundle folder (eval/core/core.h), `limit` items a task: samples into `out`; nothing where a signal ended
// it.
std::optional<OrderedJson> run_core(const HarnessRequest& request, const TokenizerBundle& text,
                                    const std::string& bundle);

// ChatCORE over the tasks in a folder (eval/core/chat_core.h), of these names (none: all), likewise.
std::optional<OrderedJson> run_chat_core(const HarnessRequest& request, const TokenizerBundle& text,
                                         const std::string& folder, const std::vector<std::string>& names);

// Runs the tasks and writes results and samples into `out`; nothing where a signal ended it (state saved).
std::optional<OrderedJson> run_harness(const HarnessRequest& request, const TokenizerBundle& text);

// Of the tasks as they resolve and of their documents: what scores depend on beside the model.
std::string harness_digest(const HarnessRequest& request);

// What run_harness would refuse (an unknown task, data or a sandbox that is not here) is refused now.
void check_harness(const HarnessRequest& request);

// The texts of each document of the tasks, joined by "\n": what training data is decontaminated by. Errors: as
// check_harness().
std::vector<std::string> eval_texts(const config::Eval& eval);

// How messages with pictures are asked; empty of a model that sees none.
std::function<eval::Asked(const OrderedJson&)> asks_with_pictures(const TokenizerBundle& text);

// Held-out requests of a synth task, with their answers: what exact match is measured on.
std::vector<eval::Question> synth_questions(const std::string& task, int64_t rows, uint64_t seed);
// {"exact_match": {rows, exact, share}} and, by what was asked for, "right" (the final number) and "sampled".
OrderedJson exact_match_json(const eval::ExactMatch& e, config::Match match);

// A baseline that regression_gate() could not read is refused now.
void check_baseline(const std::string& baseline);

// Compares with `baseline`: a results file, or a model that is evaluated in the same way into `out`/baseline. Prints
// the table; false where a score fell by more than is allowed.
bool regression_gate(const HarnessRequest& request, const OrderedJson& results, const std::string& baseline,
                     double threshold_pct);

}  // namespace mxt::app
