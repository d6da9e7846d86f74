// What this build trains.
#pragma once

#include "config/recipe.h"

namespace mxt::train {

// kMissing, naming the key, where the recipe asks for what this build does not train; the model is not looked at.
void require_supported(const config::Recipe& recipe);

}  // namespace mxt::train
