// Pictures that a text of ids is shown with.
#pragma once

#include <vector>

#include "runtime/pictures.h"

namespace mxt::infer {

// Where they stand, and their patches (image::patches_of) one picture after another.
struct Shown {
  std::vector<runtime::PlacedPicture> pictures;
  std::vector<float> pixels;
};

}  // namespace mxt::infer
