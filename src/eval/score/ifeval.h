// IFEval (Zhou et al. 2023): whether an answer follows instructions that a program can verify, strictly and loosely
// (without its first and last line and its asterisks).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "eval/task/functions.h"

namespace mxt::eval {

// `doc`: instruction_id_list, kwargs, prompt. Errors (kMissing): an instruction that is not one of IFEval's or cannot
// be verified here.
DocMetrics ifeval_results(const OrderedJson& doc, const std::vector<OrderedJson>& results);
double ifeval_instruction_accuracy(const std::vector<OrderedJson>& items);
bool follows_instruction(const std::string& id, const OrderedJson& kwargs, const std::string& prompt,
                         const std::string& answer);

}  // namespace mxt::eval
