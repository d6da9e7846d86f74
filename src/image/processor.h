// What a Qwen-VL model is shown of a picture: transformers' Qwen2VLImageProcessor (Qwen3-VL's too).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "image/picture.h"

namespace mxt::image {

struct Processor {
  int64_t patch = 16, merge = 2, frames = 2;          // pixels a side, patches a side that become one token, of time
  int64_t min_pixels = 65536, max_pixels = 16777216;  // of a resized picture; the file's shortest_edge, longest_edge
  double rescale = 1.0 / 255;
  float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {0.5f, 0.5f, 0.5f};
  int64_t patch_values() const { return 3 * frames * patch * patch; }
  std::string print() const;  // all of it, in one line: what a preparation depends on
  bool operator==(const Processor&) const = default;
};

// preprocessor_config.json, or processor_config.json's image_processor. Keys that are absent keep what `defaults` has.
// Errors (kBadInput) name file and key; kMissing: a processor of another kind, or steps turned off.
Processor processor_from_json(const Json& j, std::string_view file, const Processor& defaults);
// Of a model's folder; `defaults` where it has neither file.
Processor read_processor(const std::string& folder, const Processor& defaults);

// A preprocessor_config.json that reads as `p`; what else `file` says stays.
OrderedJson processor_to_json(const Processor& p, OrderedJson file);

struct Grid {
  int64_t height = 0, width = 0;  // of patches
  int64_t patches() const { return height * width; }
};
// Of a picture of so many pixels. Errors (kBadInput), beginning with `name`: sides more than 200 times one another.
Grid grid_of(const Processor& p, int64_t height, int64_t width, std::string_view name);
inline int64_t tokens_of(const Processor& p, Grid g) { return g.patches() / (p.merge * p.merge); }

// The picture in the size that its grid has.
Picture fit(const Processor& p, const Picture& picture, std::string_view name);

// [patches, patch_values()] of a picture that fit() made: blocks of merge × merge patches in reading order, within a
// block rows of patches; of each patch channel, frame, row, column. `rgb`: [grid.height·patch, grid.width·patch, 3].
void patches_of(const Processor& p, Grid grid, const uint8_t* rgb, float* out);

}  // namespace mxt::image
