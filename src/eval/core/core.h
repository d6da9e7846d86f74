// CORE (DCLM, arXiv 2406.11794) as nanochat measures it: a bundle folder with core.yaml (icl_tasks: label, dataset_uri,
// icl_task_type, num_fewshot, continuation_delimiter), eval_meta_data.csv (random baselines) and eval_data/.
//
// An item is a row of one of three types:
//   multiple_choice    query, choices, gold: a prompt for each choice, scored from where the tokens first differ
//   schema             context_options, continuation, gold: a prompt for each context, scored on the common last tokens
//   language_modeling  context, continuation: right where every token of the continuation is the most likely one
// Of several prompts the one with the lowest mean loss is the answer, the first of equals. A task's score is its
// accuracy, centred at its random baseline; CORE is the mean over the tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/evaluate.h"
#include "infer/continuations.h"

namespace mxt::eval {

struct CoreTask {
  enum class Type { kMultipleChoice, kSchema, kLanguageModeling };
  std::string label;
  Type type = Type::kMultipleChoice;
  size_t shots = 0;
  std::string delimiter = " ";
  double baseline = 0;             // percent
  std::vector<OrderedJson> items;  // as they are asked: shuffled by Python's Random(1337), then cut to the limit
  std::string source;              // file, for messages
};

// All tasks of the bundle; `limit` > 0: items of each at most. Errors: kMissing for a bundle that is not there;
// kBadInput names the file and row: a missing or malformed task or item, fewer items than examples are wanted.
std::vector<CoreTask> read_core_bundle(const std::string& folder, int64_t limit);

// The prompts of an item, with its examples (Random(1234 + item) draws them among the others). Of language_modeling the
// context alone, and with the continuation.
std::vector<std::string> core_prompts(const CoreTask& task, size_t item);

// What is asked of the model: prompts' tokens, begun by the BOS, and which of them are scored.
using EncodePrompt = std::function<std::vector<int32_t>(const std::string&)>;
std::vector<infer::Continuation> core_rows(const CoreTask& task, size_t item, const std::vector<std::string>& prompts,
                                           const EncodePrompt& encode);

// Scores rows, one result each; false where it was interrupted.
using ScoreRows =
    std::function<bool(const std::vector<infer::Continuation>& rows, std::vector<infer::ContinuationScore>* out)>;
// results: accuracy by label; centered_results; core_metric. Samples: prompts, losses and the verdict of each item.
Evaluation evaluate_core(const std::vector<CoreTask>& tasks, const EncodePrompt& encode, const ScoreRows& score);

std::string core_table(const OrderedJson& results);

}  // namespace mxt::eval
