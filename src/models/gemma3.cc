// Gemma 3, text (Gemma Team 2025): norms multiply by 1 + w and stand before and after each block, over each query and
// key head too; embeddings are scaled by the root of the width; most layers slide, with a rotary base of their own;
// GELU gates.
#include <cmath>

#include "base/error.h"
#include "formats/family.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph gemma3(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  Graph& g = d.g;
  d.norm_offset = 1;
  const AttentionStyle style{.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kHead};
  Stream s = d.embed();
  const float root = std::sqrt(static_cast<float>(d.width));  // of the weights' type, as there
  s.h = scale(g, s.h, g.act_type == DType::kBF16 ? bf16_to_float(float_to_bf16(root)) : root);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i);
    ValueId branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm"), i, style);
    s.branch = d.rms_norm(branch, ours + "attn_post_norm", theirs + "post_attention_layernorm");
    branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "pre_feedforward_layernorm"), i);
    s.branch = d.rms_norm(branch, ours + "mlp_post_norm", theirs + "post_feedforward_layernorm");
  }
  d.finish(s, std::string(c.family->prefix) + "norm");
  return std::move(d.g);
}

}  // namespace mxt::models
