// The part of a model that sees pictures (Qwen3-VL, Qwen3.5). Internal to the room.
#pragma once

#include "formats/vision.h"
#include "models/decoder.h"

namespace mxt::models {

// Makes that part, which stands before the text's. `whole` builds the model's graph: a graph of a part of it has the
// parameters of all of it, in one order. What the text is given: pictures' embeddings first (place() puts them in their
// tokens' places), then what is added behind each of the first layers. Empty where the graph ends here, in what
// pictures become (Purpose::kPictures).
std::vector<graph::ValueId> pictures(Decoder& d, const formats::VisionConfig& vision,
                                     graph::Graph (*whole)(const formats::ModelConfig&, const BuildOptions&));

}  // namespace mxt::models
