// What transformers' Trainer and the trainers built on it have in common.
#pragma once

#include <string>

#include "base/json.h"
#include "config/recipe.h"
#include "export/target.h"

namespace mxt::exporting {

// Its name of the optimizer. muon must have been refused.
std::string optimizer_name(const config::Recipe& recipe);

// Steps of warm-up, or below 1 a part of them where their number is not in the recipe. Notes in `s` how it differs.
OrderedJson warmup_of(const config::Schedule& schedule, Settings* s);

struct Schedule {
  std::string type;    // lr_scheduler_type
  OrderedJson kwargs;  // an object; empty: none
  OrderedJson warmup;  // warmup_of()
};
// As warmup_of(). Errors (kMissing): wsd where the number of steps is not in the recipe.
Schedule schedule_of(const Job& job, std::string_view title, Settings* s);

// The keys of TrainingArguments, all that the recipe decides and every default of theirs that differs from ours.
void put_training_arguments(const Job& job, std::string_view title, Settings* s);

// Whether there is a held-out part to be evaluated while training.
bool evaluates(const Job& job);

// float32 where weights are trained (ours have an fp32 master), else how the frozen base is held.
std::string weight_dtype(const config::Recipe& recipe);

// How rows and their cleaning differ in a trainer that tokenizes them itself; what stands in the recipe and not there.
// `holds_out`: whether it leaves out of training what the recipe holds out.
void note_data(const Job& job, Settings* s, bool holds_out = true);

}  // namespace mxt::exporting
