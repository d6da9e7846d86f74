// BERT (Devlin et al. 2018), the encoder: learned positions, attention to both sides, and the norm after each residual
// addition. Token types are all the first one: a text on its own.
#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"

namespace mxt::models {

using namespace graph;

Graph bert(const formats::ModelConfig& c, const BuildOptions& options) {
  if (options.purpose != Purpose::kEmbed)
    fail_missing(
        "bert models are encoders: they give embeddings (data.dedupe.semdedup.model), and neither train nor generate "
        "here");
  if (c.activation != "gelu" && c.activation != "gelu_new")
    fail_missing("bert with hidden_act {}: this build has gelu and gelu_new", c.activation);
  Decoder d(c, options);
  Graph& g = d.g;
  const float std = static_cast<float>(c.initializer_range), eps = static_cast<float>(c.norm_eps);
  const int64_t width = c.hidden_size, ffn = c.intermediate_size;
  const ActKind activation = c.activation == "gelu" ? ActKind::kGelu : ActKind::kGeluTanh;

  auto table = [&](const char* ours, const char* theirs, int64_t rows) {
    const ValueId t = d.matrix(ours, width, {{fmt::format("embeddings.{}_embeddings.weight", theirs), 0, rows}}, std);
    g.params[static_cast<size_t>(g.value(t).param)].kind = ParamKind::kEmbedding;
    return t;
  };
  auto layer_norm = [&](ValueId x, ValueId residual, const std::string& ours, const std::string& theirs) {
    return norm(g, x, residual, d.norm_weight(ours, theirs + ".weight", width),
                d.bias(ours + "_b", {{theirs + ".bias", 0, width}}), true, eps)
        .y;
  };
  auto project = [&](ValueId x, const std::string& ours, const std::string& theirs, int64_t in, int64_t out) {
    return linear(g, x, d.matrix(ours, in, {{theirs + ".weight", 0, out}}, std),
                  d.bias(ours + "_bias", {{theirs + ".bias", 0, out}}));
  };

  const ValueId words = embedding(g, table("embed", "word", c.vocab_size));
  const ValueId types = embedding(g, table("types", "token_type", c.type_vocab_size), RowOf::kFirst);
  const ValueId positions = embedding(g, table("positions", "position", c.max_positions), RowOf::kPosition);
  ValueId h = layer_norm(add(g, words, types), positions, "embed_norm", "embeddings.LayerNorm");
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("encoder.layer.{}.", i);
    // h = LayerNorm(h + Attention(h))
    std::vector<Segment> weights, biases;
    for (const char* n : {"query", "key", "value"}) {
      weights.push_back({theirs + "attention.self." + n + ".weight", 0, width});
      biases.push_back({theirs + "attention.self." + n + ".bias", 0, width});
    }
    const ValueId w_qkv = d.matrix(ours + "qkv", width, std::move(weights), std);
    const ValueId qkv = linear(g, h, w_qkv, d.bias(ours + "qkv_bias", std::move(biases)));
    AttentionOp a{c.num_heads,        c.num_heads, c.head_dim, 0, 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                  static_cast<int>(i)};
    a.causal = false;
    h = layer_norm(project(attention(g, qkv, a), ours + "o", theirs + "attention.output.dense", width, width), h,
                   ours + "attn_norm", theirs + "attention.output.LayerNorm");
    // h = LayerNorm(h + FFN(h))
    const ValueId up = act(g, project(h, ours + "up", theirs + "intermediate.dense", width, ffn), activation);
    h = layer_norm(project(up, ours + "down", theirs + "output.dense", ffn, width), h, ours + "mlp_norm",
                   theirs + "output.LayerNorm");
  }
  mean_pool(g, h);
  return std::move(g);
}

}  // namespace mxt::models
