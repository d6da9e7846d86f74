// Qwen3-VL (Qwen Team 2025): Qwen3's text model, whose rotation knows rows and columns of pictures, and a tower that
// sees them (vision.cc).
#include <fmt/format.h>

#include "base/error.h"
#include "formats/family.h"
#include "models/decoder.h"
#include "models/vision.h"

namespace mxt::models {

using namespace graph;

Graph qwen3_vl(const formats::ModelConfig& c, const BuildOptions& options) {
  const auto vision = formats::vision_of(c);
  MXT_ASSERT(vision);
  Decoder d(c, options);
  Graph& g = d.g;
  const std::vector<ValueId> seen = pictures(d, *vision, qwen3_vl);
  if (options.purpose == Purpose::kPictures) return std::move(g);
  Stream s = d.embed();
  s.h = place(g, s.h, seen[0], false);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i);
    s.branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm"), i,
                           {.qkv_bias = c.attention_bias, .out_bias = c.attention_bias, .norm = QkNorm::kHead});
    s.branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "post_attention_layernorm"), i);
    if (static_cast<size_t>(i + 1) < seen.size()) s.branch = place(g, s.branch, seen[static_cast<size_t>(i + 1)], true);
  }
  d.finish(s, std::string(c.family->prefix) + "norm");
  return std::move(g);
}

}  // namespace mxt::models
