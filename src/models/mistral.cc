// Mistral 7B (Jiang et al. 2023): Llama's block under a sliding window, which the configuration states for each layer.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph mistral(const formats::ModelConfig& c, const BuildOptions& options) { return llama_like(c, options, {}); }

}  // namespace mxt::models
