// Section `meta`: who and what this run is.
#pragma once

#include <cstdint>
#include <string>

namespace mxt::config {

struct Meta {
  std::string project, run_name;
  int64_t seed = 2048;
  std::string license = "apache-2.0";
  std::string description;
};

}  // namespace mxt::config
