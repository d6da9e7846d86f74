// Qwen2 (Yang et al. 2024): Llama's block with biases on q, k and v alone.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph qwen2(const formats::ModelConfig& c, const BuildOptions& options) {
  return llama_like(c, options, {.qkv_bias = true});
}

}  // namespace mxt::models
