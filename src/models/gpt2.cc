// GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU, biases everywhere; and nanoGPT's variant of it
// without biases (`"bias": false` in its configuration).
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

namespace {

ActKind activation_of(const formats::ModelConfig& c) {
  if (c.activation == "gelu") return ActKind::kGelu;
  if (c.activation == "gelu_new" || c.activation == "gelu_pytorch_tanh") return ActKind::kGeluTanh;
  if (c.activation == "relu2") return ActKind::kRelu2;
  fail_missing(
      "gpt2 models with \"activation_function\": \"{}\" are not built in: gelu, gelu_new, gelu_pytorch_tanh and relu2 "
      "are",
      c.activation);
}

}  // namespace

Graph gpt2(const formats::ModelConfig& c, const BuildOptions& options) {
  Decoder d(c, options);
  Graph& g = d.g;
  const bool biased =
      !(c.raw && c.raw->contains("bias") && (*c.raw)["bias"].is_boolean() && !(*c.raw)["bias"].get<bool>());
  const bool training = options.purpose == Purpose::kTrain;
  const float drop_in = training ? static_cast<float>(c.embd_pdrop) : 0,
              drop_out = training ? static_cast<float>(c.resid_pdrop) : 0,
              drop_attention = training ? static_cast<float>(c.attn_pdrop) : 0;
  const float std = static_cast<float>(c.initializer_range), eps = static_cast<float>(c.norm_eps);
  // The projections into the residual stream start smaller, as the paper says: 2 of them a layer.
  const float std_out = std / std::sqrt(2.0f * static_cast<float>(c.num_layers));
  const int64_t width = c.hidden_size, ffn = c.intermediate_size;
  const ActKind activation = activation_of(c);

  auto vec = [&](const std::string& ours, const std::string& theirs, int64_t n) {
    return biased ? d.bias(ours, {{theirs, 0, n}}) : kNone;
  };
  auto conv1d = [&](const std::string& ours, const std::string& theirs, int64_t in, int64_t out, float s) {
    return d.matrix(ours, in, {{theirs, 0, out, true}}, s);
  };

  const ValueId wte = d.matrix("embed", width, {{"transformer.wte.weight", 0, c.vocab_size}}, std);
  const ValueId wpe = d.matrix("positions", width, {{"transformer.wpe.weight", 0, c.max_positions}}, std);
  for (ValueId t : {wte, wpe}) g.params[static_cast<size_t>(g.value(t).param)].kind = ParamKind::kEmbedding;
  const ValueId words =
      embedding_noise(g, embedding(g, wte), options.purpose == Purpose::kTrain ? options.embedding_noise : 0);
  ValueId h = dropout(g, add(g, words, embedding(g, wpe, RowOf::kPosition)), drop_in);
  ValueId branch = kNone;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("transformer.h.{}.", i);
    NormOut n = norm(g, h, branch, d.norm_weight(ours + "attn_norm", theirs + "ln_1.weight", width),
                     vec(ours + "attn_norm_b", theirs + "ln_1.bias", width), true, eps);
    h = n.h;
    const ValueId qkv = linear(g, n.y, conv1d(ours + "qkv", theirs + "attn.c_attn.weight", width, 3 * width, std),
                               vec(ours + "qkv_bias", theirs + "attn.c_attn.bias", 3 * width));
    float scale = c.scale_attn ? 1.0f / std::sqrt(static_cast<float>(c.head_dim)) : 1.0f;
    if (c.scale_attn_by_layer) scale /= static_cast<float>(i + 1);
    const ValueId o =
        attention(g, qkv, {c.num_heads, c.num_heads, c.head_dim, 0, scale, static_cast<int>(i), drop_attention});
    branch = dropout(g,
                     linear(g, o, conv1d(ours + "o", theirs + "attn.c_proj.weight", width, width, std_out),
                            vec(ours + "o_bias", theirs + "attn.c_proj.bias", width)),
                     drop_out);

    n = norm(g, h, branch, d.norm_weight(ours + "mlp_norm", theirs + "ln_2.weight", width),
             vec(ours + "mlp_norm_b", theirs + "ln_2.bias", width), true, eps);
    h = n.h;
    const ValueId up = linear(g, n.y, conv1d(ours + "up", theirs + "mlp.c_fc.weight", width, ffn, std),
                              vec(ours + "up_bias", theirs + "mlp.c_fc.bias", ffn));
    branch = dropout(
        g,
        linear(g, act(g, up, activation), conv1d(ours + "down", theirs + "mlp.c_proj.weight", ffn, width, std_out),
               vec(ours + "down_bias", theirs + "mlp.c_proj.bias", width)),
        drop_out);
  }
  const NormOut last = norm(g, h, branch, d.norm_weight("norm", "transformer.ln_f.weight", width),
                            vec("norm_b", "transformer.ln_f.bias", width), true, eps);
  d.finish(last.y, wte);
  return std::move(g);
}

}  // namespace mxt::models
