// Llama (Touvron et al. 2023), Mistral and Qwen2: one block, with or without biases and a window.
#include "models/decoder.h"

namespace mxt::models {

graph::Graph llama(const formats::ModelConfig& c, const BuildOptions& options) {
  const bool qwen2 = c.model_type == "qwen2";  // biases on q, k, v alone
  return llama_like(c, options, false, qwen2 || c.attention_bias, !qwen2 && c.attention_bias);
}

}  // namespace mxt::models
