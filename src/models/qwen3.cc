// Qwen3 (Yang et al. 2025): Llama's block with an RMSNorm over each query and key head before the rotation. Qwen3-MoE
// has experts in place of the dense half where its configuration says so.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph qwen3(const formats::ModelConfig& c, const BuildOptions& options) {
  return llama_like(c, options, {.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kHead});
}

}  // namespace mxt::models
