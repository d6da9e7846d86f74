// Running a finished run again, elsewhere, and comparing what comes out.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "provenance/manifest.h"

namespace mxt::app {

// Trains the recipe of `manifest`'s run with its own plan in `work` (a fresh folder, left there where something
// differs) and names what differs from the manifest: plan_choices, the dataset's and the checkpoint's files. Empty =
// the same bytes.
std::vector<provenance::Finding> replay(const std::string& manifest, const std::string& work, int threads);

}  // namespace mxt::app
