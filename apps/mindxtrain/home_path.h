#pragma once

#include <string>

#include "model_files.h"

namespace mxt::app {

// A path as a recipe writes it: "~/x" is x in the home folder, as a shell would have it.
inline std::string home_path(const std::string& path) {
  const std::string home = path.starts_with("~/") ? environment("HOME") : "";
  return home.empty() ? path : home + path.substr(1);
}

}  // namespace mxt::app
