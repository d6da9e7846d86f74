// The part of a model that sees pictures: transformers' vision_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"

namespace mxt::formats {

struct VisionConfig {
  int64_t depth = 0, width = 0, inner = 0, heads = 0;
  int64_t patch = 0, merge = 0, frames = 0,
          channels = 3;                  // pixels a side, patches a side of a token, frames of a patch
  int64_t out_width = 0, positions = 0;  // positions: of a square table
  std::vector<int64_t> deepstack;        // blocks after which features are taken for the first layers
  std::string activation;
  double initializer_range = 0.02;
  int64_t image_token = -1, video_token = -1, start_token = -1, end_token = -1;
  int64_t side() const;  // of the table
};

// Of a model that this build sees pictures with; nothing for any other. Where its text is used alone otherwise
// (Family::optional_vision) this is what is there to see with. Errors (kBadInput) name `source` and the key.
std::optional<VisionConfig> vision_of(const ModelConfig& config, std::string_view source = "config.json");

// Whether a checkpoint's tensor is of the part that sees pictures, by its name.
bool sees_pictures(std::string_view tensor);

}  // namespace mxt::formats
