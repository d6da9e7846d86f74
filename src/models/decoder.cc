#include "models/decoder.h"

#include <cmath>

#include "base/error.h"
#include "formats/classifier.h"
#include "formats/family.h"
#include "graph/ops.h"
#include "models/heads.h"

namespace mxt::models {

using namespace graph;

namespace {

ActKind gate_of(const formats::ModelConfig& c) {
  if (c.activation == "silu" || c.activation == "swish") return ActKind::kSwiGlu;
  if (c.activation == "gelu_pytorch_tanh" || c.activation == "gelu_new") return ActKind::kGeGlu;
  fail_missing("{} models with \"{}\": \"{}\" are not built in: silu and gelu_pytorch_tanh are", c.model_type,
               c.family->activation_key, c.activation);
}

}  // namespace

Decoder::Decoder(const formats::ModelConfig& config, const BuildOptions& options)
    : c(config),
      o(options),
      width(c.hidden_size),
      query(c.num_heads * c.head_dim),
      key_value(c.num_kv_heads * c.head_dim),
      std(static_cast<float>(c.initializer_range)),
      eps(static_cast<float>(c.norm_eps)),
      trains(options.train_base) {
  g.act_type = o.type;
  g.vocab = c.vocab_size;
  if (o.positions > c.max_positions)
    fail_input("the model has {} positions, {} were asked for: lower data.seq_len (or serve.max_model_len)",
               c.max_positions, o.positions);
  g.max_positions = o.positions;
}

ValueId Decoder::matrix(std::string name, int64_t cols, std::vector<Segment> segments, float init_std) {
  Param p;
  p.name = std::move(name);
  p.cols = cols;
  p.rows = 0;
  for (Segment& s : segments) {
    s.row = p.rows;
    p.rows += s.rows;
  }
  p.segments = std::move(segments);
  p.init_std = init_std;
  p.trainable = trains;
  return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value;
}

// A vector is one row; its segments lie side by side, so `row` counts columns.
ValueId Decoder::vector(std::string name, ParamKind kind, std::vector<Segment> segments) {
  return vector(std::move(name), kind, std::move(segments), g.act_type);
}

ValueId Decoder::vector(std::string name, ParamKind kind, std::vector<Segment> segments, DType type) {
  Param p;
  p.name = std::move(name);
  p.kind = kind;
  for (Segment& s : segments) {
    s.row = p.cols;
    p.cols += s.rows;
  }
  p.segments = std::move(segments);
  p.trainable = trains;
  return g.params[static_cast<size_t>(g.add_param(std::move(p), type))].value;
}

ValueId Decoder::norm_weight(const std::string& ours, const std::string& theirs, int64_t n) {
  // Around one bf16 has few numbers: fp32 whatever the activations are, as transformers computes 1 + w.
  const ValueId w = vector(ours, ParamKind::kNormWeight, {{theirs, 0, n}}, norm_offset != 0 ? DType::kF32 : g.act_type);
  g.params[static_cast<size_t>(g.value(w).param)].offset = norm_offset;
  return w;
}

ValueId Decoder::ones(const std::string& ours, int64_t n) {
  Param p;
  p.name = ours;
  p.kind = ParamKind::kNormWeight;
  p.cols = n;
  return g.params[static_cast<size_t>(g.add_param(std::move(p), g.act_type))].value;
}

std::string Decoder::block(int64_t layer) const { return fmt::format("{}{}.", c.family->blocks, layer); }

ValueId Decoder::bias(const std::string& ours, std::vector<Segment> segments) {
  return vector(ours, ParamKind::kBias, std::move(segments));
}

void Decoder::finish(ValueId h, ValueId embedding) {
  if (o.purpose == Purpose::kEmbed) return mean_pool(g, h);
  if (o.head == Head::kScore && (o.purpose == Purpose::kTrain || o.purpose == Purpose::kScore)) {
    const ValueId score = matrix(std::string(kScoreHead), c.hidden_size, {{formats::kScoreWeight, 0, 1}}, std);
    g.params[static_cast<size_t>(g.value(score).param)].trainable = o.purpose == Purpose::kTrain;
    g.hidden = h;
    return add_root(g, linear(g, h, score));
  }
  const ValueId w =
      c.tie_embeddings ? embedding : matrix("head", c.hidden_size, {{"lm_head.weight", 0, c.vocab_size}}, std);
  const float softcap = static_cast<float>(c.final_logit_softcapping);
  if (o.head == Head::kLogProb && (o.purpose == Purpose::kTrain || o.purpose == Purpose::kScore)) {
    token_log_prob(g, h, w, {o.head_chunk, softcap, o.logit_scale, o.entropy});
    return;
  }
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

Stream Decoder::embed() {
  if (o.purpose == Purpose::kTrain && c.attn_pdrop > 0)
    fail_missing("\"attention_dropout\": {} is not built in for training {} models: set it to 0 in config.json",
                 c.attn_pdrop, c.model_type);
  g.rotary = c.rotary();
  std::vector<float> cos, sin;
  rope_tables(c, o.positions, cos, sin);
  rope_ = sliding_rope_ = g.add_rope(cos, sin);
  if (c.sliding_rope_theta > 0) {
    sliding_rope_tables(c, o.positions, cos, sin);
    sliding_rope_ = g.add_rope(cos, sin);
  }
  table = matrix("embed", width, {{std::string(c.family->embedding), 0, c.vocab_size}}, std);
  g.params[static_cast<size_t>(g.value(table).param)].kind = ParamKind::kEmbedding;
  const ValueId h = embedding(g, table, ids, padding);
  return {o.purpose == Purpose::kTrain ? embedding_noise(g, h, o.embedding_noise) : h, kNone};
}

ValueId Decoder::rms_norm(Stream& s, const std::string& ours, const std::string& theirs) {
  const ValueId w = theirs.empty() ? kNone : norm_weight(ours, theirs + ".weight", width);
  const NormOut n = norm(g, s.h, s.branch, w, kNone, false, eps);
  s = {n.h, kNone};
  return n.y;
}

ValueId Decoder::rms_norm(ValueId x, const std::string& ours, const std::string& theirs) {
  Stream alone{x, kNone};
  return rms_norm(alone, ours, theirs);
}

ValueId Decoder::attention(ValueId x, int64_t i, const AttentionStyle& style) {
  const std::string ours = fmt::format("layers.{}.", i), theirs = block(i) + "self_attn.";
  const auto qkv_segments = [&](const char* suffix) {
    if (style.fused) return std::vector<Segment>{{theirs + "qkv_proj" + suffix, 0, query + 2 * key_value}};
    return std::vector<Segment>{{theirs + "q_proj" + suffix, 0, style.output_gate ? 2 * query : query},
                                {theirs + "k_proj" + suffix, 0, key_value},
                                {theirs + "v_proj" + suffix, 0, key_value}};
  };
  const ValueId w_qkv = matrix(ours + "qkv", width, qkv_segments(".weight"), style.std < 0 ? std : style.std);
  ValueId qkv = linear(g, x, w_qkv, style.qkv_bias ? bias(ours + "qkv_bias", qkv_segments(".bias")) : kNone);
  if (style.values) qkv = style.values(qkv);
  ValueId gate = kNone;
  if (style.output_gate) {
    const Split s = split_gates(g, qkv, c.num_heads, c.head_dim);
    qkv = s.plain, gate = s.gate;
  }
  ValueId q_w = kNone, k_w = kNone;
  if (style.norm == QkNorm::kHead) {
    q_w = norm_weight(ours + "q_norm", theirs + "q_norm.weight", c.head_dim);
    k_w = norm_weight(ours + "k_norm", theirs + "k_norm.weight", c.head_dim);
  } else if (style.norm == QkNorm::kWeightless) {
    q_w = ones(ours + "q_norm", c.head_dim);
    k_w = ones(ours + "k_norm", c.head_dim);
  } else if (style.norm == QkNorm::kWhole) {
    const ValueId whole_q = norm_weight(ours + "q_norm", theirs + "q_norm.weight", query);
    const ValueId whole_k = norm_weight(ours + "k_norm", theirs + "k_norm.weight", key_value);
    qkv = qkv_norm(g, qkv, {query, key_value, eps}, whole_q, whole_k);
  }
  const int64_t window = c.layers[static_cast<size_t>(i)].window;
  QkNormRopeOp rope{c.num_heads, c.num_kv_heads, c.head_dim, g.rotary, eps};
  rope.table = window > 0 ? sliding_rope_ : rope_;
  rope.angles = angles;
  qkv = qk_norm_rope(g, qkv, rope, q_w, k_w);
  const double scalar = c.query_scalar > 0 ? c.query_scalar : static_cast<double>(c.head_dim);
  const AttentionOp a{c.num_heads,
                      c.num_kv_heads,
                      c.head_dim,
                      window,
                      style.qk_scale * style.qk_scale / std::sqrt(static_cast<float>(scalar)),
                      static_cast<int>(i)};
  const ValueId b_o = style.out_bias ? bias(ours + "o_bias", {{theirs + "o_proj.bias", 0, width}}) : kNone;
  ValueId sinks = kNone;
  if (style.sinks) {
    sinks = vector(ours + "sinks", ParamKind::kDecay, {{theirs + "sinks", 0, c.num_heads}}, DType::kF32);
    param(sinks).init_values.assign(static_cast<size_t>(c.num_heads), 0.0f);
  }
  ValueId o = graph::attention(g, qkv, a, sinks);
  if (gate != kNone) o = sigmoid_gate(g, o, gate);
  return linear(
      g, o, matrix(ours + "o", query, {{theirs + "o_proj.weight", 0, width}}, style.out_std < 0 ? std : style.out_std),
      b_o);
}

ValueId Decoder::gated_mlp(ValueId x, int64_t i, bool fused) {
  const std::string ours = fmt::format("layers.{}.", i), theirs = block(i) + "mlp.";
  if (c.layers[static_cast<size_t>(i)].mlp == formats::LayerSpec::Mlp::kExperts) return experts(x, ours, theirs);
  return gated_mlp(x, ours, theirs, c.intermediate_size, fused);
}

ValueId Decoder::gated_mlp(ValueId x, const std::string& ours, const std::string& theirs, int64_t ffn, bool fused) {
  const auto segments = [&](const char* suffix) {
    if (fused) return std::vector<Segment>{{theirs + "gate_up_proj" + suffix, 0, 2 * ffn}};
    return std::vector<Segment>{{theirs + "gate_proj" + suffix, 0, ffn}, {theirs + "up_proj" + suffix, 0, ffn}};
  };
  const ActKind kind = gate_of(c);
  const ValueId b_up = c.mlp_bias ? bias(ours + "gate_up_bias", segments(".bias")) : kNone;
  const ValueId gate_up = linear(g, x, matrix(ours + "gate_up", width, segments(".weight"), std), b_up);
  const ValueId b_down = c.mlp_bias ? bias(ours + "down_bias", {{theirs + "down_proj.bias", 0, width}}) : kNone;
  return linear(g, act(g, gate_up, kind), matrix(ours + "down", ffn, {{theirs + "down_proj.weight", 0, width}}, std),
                b_down);
}

ValueId Decoder::mlp(ValueId x, int64_t i, ActKind kind, float up_std, float down_std) {
  const std::string ours = fmt::format("layers.{}.", i), theirs = fmt::format("model.layers.{}.mlp.", i);
  const int64_t ffn = c.intermediate_size;
  const ValueId w_up = matrix(ours + "up", width, {{theirs + "fc1.weight", 0, ffn}}, up_std < 0 ? std : up_std);
  const ValueId y = act(g, linear(g, x, w_up), kind);
  return linear(g, y, matrix(ours + "down", ffn, {{theirs + "fc2.weight", 0, width}}, down_std < 0 ? std : down_std));
}

void Decoder::finish(Stream& s, const std::string& norm) {
  const ValueId h = rms_norm(s, "norm", norm);
  const double balance = o.balance_loss.value_or(c.output_router_logits ? c.router_aux_loss_coef : 0);
  if (o.purpose == Purpose::kTrain && !routed_.empty()) balance_loss(g, routed_, static_cast<float>(balance));
  finish(h, table);
}

Graph llama_like(const formats::ModelConfig& c, const BuildOptions& options, const AttentionStyle& style) {
  Decoder d(c, options);
  Stream s = d.embed();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), theirs = d.block(i);
    s.branch = d.attention(d.rms_norm(s, ours + "attn_norm", theirs + "input_layernorm"), i, style);
    s.branch = d.gated_mlp(d.rms_norm(s, ours + "mlp_norm", theirs + "post_attention_layernorm"), i);
  }
  d.finish(s);
  return std::move(d.g);
}

}  // namespace mxt::models
