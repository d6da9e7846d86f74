// A picture's file to its pixels, as Pillow's Image.open(…).convert("RGB") after exif_transpose gives them: greys and
// palettes are expanded, alpha is left out (not blended), an EXIF orientation is followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mxt::image {

struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// A file says how large it is before it is decoded: nothing is allocated beyond these.
struct Limits {
  size_t bytes = size_t{64} << 20;
  int64_t pixels = 89478485;  // Pillow's MAX_IMAGE_PIXELS
  int64_t side = 65500;       // libjpeg's
};

// Errors (kBadInput), one line that begins with `name`: not a JPEG, PNG or WebP (SVG, GIF and others by name), an
// extension of `name` that says another format, truncated or damaged, beyond the limits, animated, CMYK, 16 bits a
// channel.
Picture decode(std::span<const std::byte> file, std::string_view name, const Limits& limits = {});

// The file at `path`, of whose size no more than the limit is read.
Picture read_picture(const std::string& path, const Limits& limits = {});
std::vector<std::byte> read_picture_file(const std::string& path, const Limits& limits = {});

// A PNG of it, as a data URI.
std::string data_uri(const Picture& picture);

// Whether `text` is a data URI of a picture (data:image/png;base64,…); its bytes. Errors (kBadInput): no base64.
bool is_data_uri(std::string_view text);
std::vector<std::byte> data_uri_bytes(std::string_view text, std::string_view name, const Limits& limits = {});

}  // namespace mxt::image
