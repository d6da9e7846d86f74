// nanochat (Karpathy 2025) as transformers holds it: norms without weights, also right behind the embedding and over
// each query and key head; relu² in the MLP; the head's logits capped.
#include "base/error.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph nanochat(const formats::ModelConfig& c, const BuildOptions& options) {
  if (c.activation != "relu2")
    fail_missing("nanochat models with \"hidden_act\": \"{}\" are not built in: relu2 is", c.activation);
  Decoder d(c, options);
  Stream s = d.embed();
  // Heads turn the other way; they are normed behind it, which takes off what YaRN and LongRoPE multiply the turn by.
  const float scale = d.g.rope_cos.at(0);
  for (float& x : d.g.rope_cos) x /= scale;
  for (float& x : d.g.rope_sin) x /= -scale;
  s.h = d.rms_norm(s, "", "");
  const AttentionStyle style{.qkv_bias = c.attention_bias,
                             .out_bias = c.attention_bias,
                             .norm = QkNorm::kWeightless};  // commutes with a turn that scales nothing
  for (int64_t i = 0; i < c.num_layers; ++i) {
    s.branch = d.attention(d.rms_norm(s, "", ""), i, style);
    s.branch = d.mlp(d.rms_norm(s, "", ""), i, ActKind::kRelu2);
  }
  d.finish(s, "");
  return std::move(d.g);
}

}  // namespace mxt::models
