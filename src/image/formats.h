// One format each. Internal to the room.
#pragma once

#include "image/picture.h"

namespace mxt::image {

struct File {
  std::span<const std::byte> bytes;
  std::string_view name;
  const Limits& limits;
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes.data()); }
};

struct Decoded {
  Picture picture;
  std::vector<uint8_t> exif;  // a TIFF block, or nothing
};
Decoded decode_jpeg(const File& f);
Decoded decode_png(const File& f);
Decoded decode_webp(const File& f);

// kBadInput where the header's size is beyond the limits.
void check_size(const File& f, int64_t width, int64_t height);

// EXIF's orientation, 1 to 8; 1 where there is none or the block is damaged.
int orientation_of(std::span<const uint8_t> exif);
void orient(Picture& p, int orientation);

}  // namespace mxt::image
