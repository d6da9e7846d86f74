// Parts of the reading of a config.json that families share. Internal to the room.
#pragma once

#include "formats/config/keys.h"
#include "formats/family.h"

namespace mxt::formats {

void read_rope(const Keys& k, const Family& f, ModelConfig& c);
// The mixer and the MLP of every layer: layer_types, windows, experts.
void read_layers(const Keys& k, const Family& f, ModelConfig& c);

}  // namespace mxt::formats
