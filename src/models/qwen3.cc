// Qwen3 dense (Yang et al. 2025): Llama's block with an RMSNorm over each query and key head before the rotation.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph qwen3(const formats::ModelConfig& c, const BuildOptions& options) {
  return llama_like(c, options, {.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kHead});
}

}  // namespace mxt::models
