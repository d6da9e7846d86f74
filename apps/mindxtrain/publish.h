// Publishing, as `publish` and `run --publish` do it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "publish/steps.h"

namespace mxt::app {

struct PublishOptions {
  std::string run, config;  // config "": the run's own recipe says where to
  std::vector<std::string> only;
  bool dry_run = false, json = false, again = false;
  std::function<void(config::Recipe&)> adjust;  // of the publish section, by a verb's own options
};

// Does the steps and prints their results.
void publish_run(const PublishOptions& options);
publish::Surroundings publish_surroundings();

}  // namespace mxt::app
