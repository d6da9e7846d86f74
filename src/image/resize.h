// Bicubic resampling with antialiasing as Pillow (up to 12) computes it on 8-bit pixels, to the bit: weights of 22
// bits, rounded to 8 bits between the passes.
#pragma once

#include "image/picture.h"

namespace mxt::image {

Picture resize_bicubic(const Picture& p, int64_t height, int64_t width);

}  // namespace mxt::image
