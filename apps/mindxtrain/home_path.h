#pragma once

#include <string>

namespace mxt::app {

// HOME; where it is unset (services, cron) what the system says of the user, "" where it says nothing.
std::string home_folder();

// A path as a recipe writes it: "~/x" is x in the home folder, as a shell would have it.
inline std::string home_path(const std::string& path) {
  const std::string home = path.starts_with("~/") ? home_folder() : "";
  return home.empty() ? path : home + path.substr(1);
}

}  // namespace mxt::app
