// Phi-3 and Phi-4 (Abdin et al. 2024): Llama's block; q, k and v, and gate and up, stand in one matrix each, and a part
// of each head may pass unrotated.
#include "base/error.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph phi3(const formats::ModelConfig& c, const BuildOptions& options) {
  if (options.purpose == Purpose::kTrain && (c.resid_pdrop > 0 || c.embd_pdrop > 0))
    fail_missing("\"resid_pdrop\": {} and \"embd_pdrop\": {} are not built in for training {} models: set them to 0",
                 c.resid_pdrop, c.embd_pdrop, c.model_type);
  Decoder d(c, options);
  Stream s = d.embed();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    s.branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm"), i, {.fused = true});
    s.branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "post_attention_layernorm"), i, true);
  }
  d.finish(s);
  return std::move(d.g);
}

}  // namespace mxt::models
