// Section `autotune`: the probe that measures before anything trains.
#pragma once

#include <cstdint>
#include <string>

#include "config/enums.h"

namespace mxt::config {

struct Autotune {
  bool enabled = true;
  std::string plan_path = "./out/mindxtrain.tuned.yaml";
  int64_t budget_seconds = 60;
  Policy policy = Policy::kAotOnly;
};

}  // namespace mxt::config
