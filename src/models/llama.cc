// Llama (Touvron et al. 2023): pre-norm blocks of rotated attention and SwiGLU.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph llama(const formats::ModelConfig& c, const BuildOptions& options) {
  return llama_like(c, options, {.qkv_bias = c.attention_bias, .out_bias = c.attention_bias});
}

}  // namespace mxt::models
