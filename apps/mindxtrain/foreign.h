// Other trainers: what they are told of a recipe, and TRL as a program that is launched.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/recipe.h"
#include "export/target.h"

namespace mxt::app {

// The recipe's base as another program finds it: a folder by its whole path, anything else by its Hub id (of the
// quickstart's file the id of what it was made of). `title` is the trainer's, for messages. Errors (kMissing): a GGUF
// file.
exporting::Base foreign_base(const config::Recipe& recipe, const std::string& title);

// A Python that has TRL, and its versions of what trains.
struct TrlPython {
  std::string python;
  Json versions;  // {"python": "3.11.2", "trl": …, "transformers": …, "peft": …, "torch": …}
};
// MINDXTRAIN_PYTHON, else python3 of the PATH. Errors (kMissing): there is none, or it has no TRL.
TrlPython find_trl();

// Runs FOLDER/launch.py with SCRATCH/job.json; what it prints goes to FOLDER/log.txt, and each line of its reports to
// `take`. A stop of this program is passed on to it. Its exit code, 128 and the signal where one ended it.
int run_trl(const TrlPython& trl, const std::string& folder, const std::string& scratch,
            const std::function<void(const Json&)>& take);
std::string last_line(const std::string& file);  // that is not blank; "" where there is none

// The steps of a run, for who follows it.
struct ForeignSteps {
  std::string folder, scratch;
  int64_t before = 0, steps = 0, per_step = 0, per_epoch = 0;  // before: of a state that is resumed; rows a step
  OrderedJson rates;                                           // [steps]
  std::vector<int64_t> tokens;                                 // [rows]
  std::vector<uint32_t> order;                                 // rows of all epochs
};

}  // namespace mxt::app
