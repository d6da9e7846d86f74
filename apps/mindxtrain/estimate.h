// What a run will take in memory, time, energy and money: for `plan` and for Coach.
#pragma once

#include <string>

#include "base/json.h"
#include "config/prices.h"
#include "config/recipe.h"
#include "model_files.h"

namespace mxt::app {

struct EstimateOptions {
  std::string plan;    // AutotunePlan whose choices and times to count with
  std::string device;  // a name of the table of devices; "": the recipe's
  std::string prices;  // a table over the one that ships; "": none
  std::string data;    // prepared folder: says how many steps an epoch has
  std::string dump;    // file that the step program is written to, as text (runtime::print)
  Fetch fetch = Fetch::kAllowed;
};

// kBadInput with the names that there are, where the table lacks it.
void require_device(const config::Prices& prices, const std::string& device);

// The answer of `plan --json` (RECIPE's keys first). Nothing is allocated but the graphs. Errors: as the verb's.
OrderedJson estimate(config::Recipe recipe, const EstimateOptions& options);

}  // namespace mxt::app
