#pragma once

#include "config/recipe.h"

namespace mxt::python {

struct Recipe {
  config::Recipe value;
};

}  // namespace mxt::python
