// Publishing, as `publish` and `run --publish` do it.
#pragma once

#include <string>
#include <vector>

namespace mxt::app {

struct PublishOptions {
  std::string run, config;  // config "": the run's own recipe says where to
  std::vector<std::string> only;
  bool dry_run = false, json = false;
};

// Does the steps and prints their results.
void publish_run(const PublishOptions& options);

}  // namespace mxt::app
