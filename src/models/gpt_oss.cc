// gpt-oss (OpenAI 2025): every layer's experts have biases and clamped gates; each head has a sink beside its scores;
// every second layer slides.
#include <fmt/format.h>

#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph gpt_oss(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  const AttentionStyle style{.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .sinks = true};
  Stream s = d.embed();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i);
    s.branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm"), i, style);
    s.branch = d.experts(d.rms_norm(s, ours + "mlp_norm", theirs + "post_attention_layernorm"), ours, theirs + "mlp.",
                         {.router = "router", .bias = true});
  }
  d.finish(s);
  return std::move(d.g);
}

}  // namespace mxt::models
