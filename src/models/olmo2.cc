// OLMo 2 (OLMo et al. 2024): what a block adds is normed, not what it reads; RMSNorm over all queries and all keys.
#include "base/error.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph olmo2(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  Graph& g = d.g;
  const AttentionStyle style{.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kWhole};
  Stream s = d.embed();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    s.h = add(g, s.h, d.rms_norm(d.attention(s.h, i, style), ours + "attn_norm", theirs + "post_attention_layernorm"));
    s.h = add(g, s.h, d.rms_norm(d.gated_mlp(s.h, i), ours + "mlp_norm", theirs + "post_feedforward_layernorm"));
  }
  d.finish(s);
  return std::move(d.g);
}

}  // namespace mxt::models
