// EXIF's orientation (tag 0x112 of the first directory of a TIFF block) and what it asks for.
#include <algorithm>

#include "image/formats.h"

namespace mxt::image {

int orientation_of(std::span<const uint8_t> t) {
  if (t.size() < 8) return 1;
  const bool little = t[0] == 'I' && t[1] == 'I';
  if (!little && !(t[0] == 'M' && t[1] == 'M')) return 1;
  const auto whole = [&](size_t at, size_t n) {
    uint32_t v = 0;
    for (size_t i = 0; i < n; ++i) v |= uint32_t{t[at + i]} << 8 * (little ? i : n - 1 - i);
    return v;
  };
  const size_t directory = whole(4, 4);
  if (whole(2, 2) != 42 || directory > t.size() - 2) return 1;
  const size_t entries = whole(directory, 2);
  for (size_t i = 0; i < entries && directory + 2 + 12 * (i + 1) <= t.size(); ++i) {
    const size_t at = directory + 2 + 12 * i;
    if (whole(at, 2) != 0x112) continue;
    const uint32_t v = whole(at + 8, 2);
    return v >= 1 && v <= 8 ? static_cast<int>(v) : 1;
  }
  return 1;
}

// Two bits of mirroring, and whether rows and columns change places first: 2 mirrors left to right, 4 top to bottom, 3
// both; 5 transposes, 6 turns right, 7 transposes over the other diagonal, 8 turns left.
void orient(Picture& p, int orientation) {
  if (orientation <= 1) return;
  const bool turn = orientation >= 5,
             from_right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7,
             from_below = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Picture out{turn ? p.width : p.height, turn ? p.height : p.width, {}};
  out.rgb.resize(p.rgb.size());
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      const int64_t oy = from_below ? out.height - 1 - y : y, ox = from_right ? out.width - 1 - x : x;
      const int64_t sy = turn ? ox : oy, sx = turn ? oy : ox;
      std::copy_n(p.rgb.begin() + 3 * (sy * p.width + sx), 3, out.rgb.begin() + 3 * (y * out.width + x));
    }
  p = std::move(out);
}

}  // namespace mxt::image
