#include "models/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops.h"

namespace mxt::models {

using namespace graph;

Decoder::Decoder(const formats::ModelConfig& config, const BuildOptions& options) : c(config), o(options) {
  g.act_type = o.type;
  g.vocab = c.vocab_size;
  if (o.positions > c.max_positions)
    fail_input("the model has {} positions, {} were asked for: lower data.seq_len (or serve.max_model_len)",
               c.max_positions, o.positions);
  g.max_positions = o.positions;
}

ValueId Decoder::matrix(std::string name, int64_t cols, std::vector<Segment> segments, float std) {
  Param p;
  p.name = std::move(name);
  p.cols = cols;
  p.rows = 0;
  for (Segment& s : segments) {
    s.row = p.rows;
    p.rows += s.rows;
  }
  p.segments = std::move(segments);
  p.init_std = std;
  p.trainable = o.train_base;
  return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value;
}

// A vector is one row; its segments lie side by side, so `row` counts columns.
ValueId Decoder::vector(std::string name, ParamKind kind, std::vector<Segment> segments) {
  Param p;
  p.name = std::move(name);
  p.kind = kind;
  for (Segment& s : segments) {
    s.row = p.cols;
    p.cols += s.rows;
  }
  p.segments = std::move(segments);
  p.trainable = o.train_base;
  return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value;
}

ValueId Decoder::norm_weight(const std::string& ours, const std::string& theirs, int64_t n) {
  return vector(ours, ParamKind::kNormWeight, {{theirs, 0, n}});
}

ValueId Decoder::bias(const std::string& ours, std::vector<Segment> segments) {
  return vector(ours, ParamKind::kBias, std::move(segments));
}

void Decoder::finish(ValueId h, ValueId embedding) {
  if (o.purpose == Purpose::kEmbed) return mean_pool(g, h);
  const ValueId w = c.tie_embeddings ? embedding
                                     : matrix("head", c.hidden_size, {{"lm_head.weight", 0, c.vocab_size}},
                                              static_cast<float>(c.initializer_range));
  const float softcap = static_cast<float>(c.final_logit_softcapping);
  switch (o.purpose) {
    case Purpose::kTrain:
      head(g, h, w, o.head_chunk, softcap, true);
      break;
    case Purpose::kScore:
      head(g, h, w, o.head_chunk, softcap, false);
      break;
    default:
      logits(g, h, w, softcap);
  }
}

Graph llama_like(const formats::ModelConfig& config, const BuildOptions& options, bool qk_norm, bool qkv_bias,
                 bool out_bias) {
  Decoder d(config, options);
  Graph& g = d.g;
  const formats::ModelConfig& c = config;
  if (c.activation != "silu" && c.activation != "swish")
    fail_missing("{} models with \"hidden_act\": \"{}\" are not built in: silu is", c.model_type, c.activation);
  if (options.purpose == Purpose::kTrain && c.attn_pdrop > 0)
    fail_missing("\"attention_dropout\": {} is not built in for training {} models: set it to 0 in config.json",
                 c.attn_pdrop, c.model_type);
  const float std = static_cast<float>(c.initializer_range), eps = static_cast<float>(c.norm_eps);
  const int64_t width = c.hidden_size, q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim,
                ffn = c.intermediate_size;
  const int64_t rotary = c.rotary();
  g.rotary = rotary;
  rope_tables(c, rotary, options.positions, g.rope_cos, g.rope_sin);

  const ValueId table = d.matrix("embed", width, {{"model.embed_tokens.weight", 0, c.vocab_size}}, std);
  g.params[static_cast<size_t>(g.value(table).param)].kind = ParamKind::kEmbedding;
  ValueId h = embedding(g, table);  // the residual stream
  ValueId branch = kNone;           // what the last block adds to it
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.", i);
    auto attn_name = [&](const char* n) { return theirs + "self_attn." + n; };
    auto mlp_name = [&](const char* n) { return theirs + "mlp." + n; };

    // h += Attention(RMSNorm(h))
    NormOut n = norm(g, h, branch, d.norm_weight(ours + "attn_norm", theirs + "input_layernorm.weight", width), kNone,
                     false, eps);
    h = n.h;
    const ValueId w_qkv = d.matrix(
        ours + "qkv", width,
        {{attn_name("q_proj.weight"), 0, q}, {attn_name("k_proj.weight"), 0, kv}, {attn_name("v_proj.weight"), 0, kv}},
        std);
    const ValueId b_qkv = qkv_bias ? d.bias(ours + "qkv_bias", {{attn_name("q_proj.bias"), 0, q},
                                                                {attn_name("k_proj.bias"), 0, kv},
                                                                {attn_name("v_proj.bias"), 0, kv}})
                                   : kNone;
    ValueId qkv = linear(g, n.y, w_qkv, b_qkv);
    ValueId q_w = kNone, k_w = kNone;
    if (qk_norm) {
      q_w = d.norm_weight(ours + "q_norm", attn_name("q_norm.weight"), c.head_dim);
      k_w = d.norm_weight(ours + "k_norm", attn_name("k_norm.weight"), c.head_dim);
    }
    qkv = qk_rope(g, qkv, {c.num_heads, c.num_kv_heads, c.head_dim, rotary, eps}, q_w, k_w);
    const bool sliding =
        c.sliding_window > 0 && (c.layer_types.empty() || c.layer_types[static_cast<size_t>(i)] == "sliding_attention");
    const AttentionOp a{c.num_heads,
                        c.num_kv_heads,
                        c.head_dim,
                        sliding ? c.sliding_window : 0,
                        1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                        static_cast<int>(i)};
    const ValueId b_o = out_bias ? d.bias(ours + "o_bias", {{attn_name("o_proj.bias"), 0, width}}) : kNone;
    branch =
        linear(g, attention(g, qkv, a), d.matrix(ours + "o", q, {{attn_name("o_proj.weight"), 0, width}}, std), b_o);

    // h += SwiGLU(RMSNorm(h))
    n = norm(g, h, branch, d.norm_weight(ours + "mlp_norm", theirs + "post_attention_layernorm.weight", width), kNone,
             false, eps);
    h = n.h;
    const ValueId b_up = c.mlp_bias ? d.bias(ours + "gate_up_bias",
                                             {{mlp_name("gate_proj.bias"), 0, ffn}, {mlp_name("up_proj.bias"), 0, ffn}})
                                    : kNone;
    const ValueId gate_up =
        linear(g, n.y,
               d.matrix(ours + "gate_up", width,
                        {{mlp_name("gate_proj.weight"), 0, ffn}, {mlp_name("up_proj.weight"), 0, ffn}}, std),
               b_up);
    const ValueId b_down = c.mlp_bias ? d.bias(ours + "down_bias", {{mlp_name("down_proj.bias"), 0, width}}) : kNone;
    branch = linear(g, act(g, gate_up, ActKind::kSwiGlu),
                    d.matrix(ours + "down", ffn, {{mlp_name("down_proj.weight"), 0, width}}, std), b_down);
  }
  const NormOut last = norm(g, h, branch, d.norm_weight("norm", "model.norm.weight", width), kNone, false, eps);
  d.finish(last.y, table);
  return std::move(g);
}

}  // namespace mxt::models
