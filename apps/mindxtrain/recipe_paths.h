// Which files a recipe may name that came over the network.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"

namespace mxt::app {

class Roots {
 public:
  // The working directory is always one of them. Links inside a root are the owner's and are followed.
  explicit Roots(const std::vector<std::string>& folders);
  bool holds(const std::string& path) const;
  // One issue for each value that is an absolute path, or climbs by "..", and lies in no root. Line and column are
  // those of the value in the recipe's text.
  std::vector<config::Issue> outside(const config::Recipe& recipe) const;

 private:
  std::vector<std::string> roots_;  // absolute, normal, ending in '/'
};

}  // namespace mxt::app
