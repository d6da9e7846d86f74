// Instella (AMD 2025): Llama's block with an RMSNorm over all queries and all keys of a token.
#include "base/error.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph instella(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  const AttentionStyle style{.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kWhole};
  Stream s = d.embed();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    s.branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "pre_attention_layernorm"), i, style);
    s.branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "pre_feedforward_layernorm"), i);
  }
  d.finish(s);
  return std::move(d.g);
}

}  // namespace mxt::models
