// Qwen3.5, 3.6 and 3.8 (text): layers of gated DeltaNet (Yang et al. 2024) with gated full attention between, dense or
// with experts and a shared one, and, where pictures are asked for, Qwen3-VL's tower without DeepStack. Norms are
// centred on zero, but for the one within gated DeltaNet and the tower's.
#include <fmt/format.h>

#include "base/error.h"
#include "formats/family.h"
#include "models/decoder.h"
#include "models/vision.h"

namespace mxt::models {

using namespace graph;

namespace {

ValueId gated_delta_net(Decoder& d, ValueId x, int64_t i) {
  const formats::ModelConfig& c = d.c;
  Graph& g = d.g;
  if (c.activation != "silu" && c.activation != "swish")
    fail_missing("gated delta layers with \"hidden_act\": \"{}\" are not built in: silu is", c.activation);
  const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i) + "linear_attn.";
  const int64_t keys = c.linear_key_heads * c.linear_key_head_dim, heads = c.linear_value_heads,
                values = heads * c.linear_value_head_dim, channels = 2 * keys + values;
  auto project = [&](const char* name, std::vector<Segment> segments) {
    return linear(g, x, d.matrix(ours + name, d.width, std::move(segments), d.std));
  };
  const ValueId qkv = project("delta_qkv", {{theirs + "in_proj_qkv.weight", 0, channels}});
  const ValueId taps =
      d.matrix(ours + "delta_conv", c.linear_conv_kernel, {{theirs + "conv1d.weight", 0, channels}}, d.std);
  g.params[static_cast<size_t>(g.value(taps).param)].kind = ParamKind::kConv;
  const ValueId ba =
      project("delta_ba", {{theirs + "in_proj_b.weight", 0, heads}, {theirs + "in_proj_a.weight", 0, heads}});
  // Rates are fp32 whatever the rest is in.
  const ValueId a_log = d.vector(ours + "delta_a_log", ParamKind::kDecay, {{theirs + "A_log", 0, heads}}, DType::kF32);
  const ValueId dt = d.vector(ours + "delta_dt", ParamKind::kBias, {{theirs + "dt_bias", 0, heads}}, DType::kF32);
  g.params[static_cast<size_t>(g.value(dt).param)].init_mean = 1;
  const int layer = static_cast<int>(i);
  const ValueId o = gated_delta(g, causal_conv(g, qkv, taps, layer), ba, a_log, dt,
                                {c.linear_key_heads, heads, c.linear_key_head_dim, c.linear_value_head_dim, layer});
  const ValueId z = project("delta_z", {{theirs + "in_proj_z.weight", 0, values}});
  const ValueId w =
      d.vector(ours + "delta_norm", ParamKind::kNormWeight, {{theirs + "norm.weight", 0, c.linear_value_head_dim}});
  return linear(g, gated_norm(g, o, z, w, d.eps),
                d.matrix(ours + "delta_out", values, {{theirs + "out_proj.weight", 0, d.width}}, d.std));
}

}  // namespace

Graph qwen3_5(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  d.norm_offset = 1;
  std::vector<ValueId> seen;
  if (options.pictures) {
    const auto vision = formats::vision_of(c);
    if (!vision)
      fail_input("the model ({}) has no part that sees pictures: its config.json has no vision_config", c.model_type);
    seen = pictures(d, *vision, qwen3_5);
    if (options.purpose == Purpose::kPictures) return std::move(d.g);
  }
  Stream s = d.embed();
  if (!seen.empty()) s.h = place(d.g, s.h, seen[0], false);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i);
    const ValueId x = d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm");
    s.branch = c.layers[static_cast<size_t>(i)].mixer == formats::LayerSpec::Mixer::kGatedDelta
                   ? gated_delta_net(d, x, i)
                   : d.attention(x, i,
                                 {.qkv_bias = c.attention_bias,
                                  .out_bias = c.attention_bias,
                                  .norm = QkNorm::kHead,
                                  .output_gate = true});
    s.branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "post_attention_layernorm"), i);
  }
  d.finish(s, std::string(c.family->prefix) + "norm");
  return std::move(d.g);
}

}  // namespace mxt::models
