// gpt-oss (OpenAI 2025).
#include <nlohmann/json.hpp>

#include "formats/arch/families.h"
#include "formats/config/keys.h"

namespace mxt::formats {
namespace {

// The class's own where the file has no rotary scaling.
RopeScaling usual_scaling() {
  RopeScaling r;
  r.kind = RopeScaling::Kind::kYarn;
  r.factor = 32;
  r.original_max_positions = 4096;
  r.truncate = false;
  return r;
}

void read(const Keys& k, ModelConfig& c) {
  c.moe_intermediate_size = c.intermediate_size;
  c.glu_alpha = k.number({"swiglu_alpha"}, 1.702, 1e-6, 1e6);
  c.glu_limit = k.number({"swiglu_limit"}, 7.0, 1e-6, 1e6);
  if (!k.find({"rope_parameters"}) && !k.find({"rope_scaling"})) c.rope_scaling = usual_scaling();
}

constexpr WeightName kBlock[] = {
    {"attn_norm", "input_layernorm", Extent::kWidth},
    {"attn_q", "self_attn.q_proj", Extent::kQuery, Extent::kWidth},
    {"attn_k", "self_attn.k_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_v", "self_attn.v_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    [] {
      WeightName w{"attn_sinks.weight", "self_attn.sinks", Extent::kHeads};
      w.whole = true;
      return w;
    }(),
    {"post_attention_norm", "post_attention_layernorm", Extent::kWidth},
    {"ffn_gate_inp", "mlp.router", Extent::kExperts, Extent::kWidth},
};

constexpr double kAlpha = 1.702, kLimit = 7;  // what llama.cpp computes its gates with

void read_gguf(const ArchKeys& k, ModelConfig& c) {
  c.num_experts = k.need("expert_count", 1, kMaxCount);
  c.experts_per_token = k.need("expert_used_count", 1, kMaxCount);
  c.moe_intermediate_size = k.need("expert_feed_forward_length", 1, kMaxWidth);
  c.intermediate_size = c.moe_intermediate_size;
  c.norm_topk_prob = true;
  c.router_aux_loss_coef = 0.9;
  c.glu_alpha = kAlpha;
  c.glu_limit = kLimit;
  const int64_t window = k.need("attention.sliding_window", 1, kMaxTokens),
                pattern = k.find("attention.sliding_window_pattern", 1, kMaxLayers).value_or(2);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    LayerSpec& l = c.layers[static_cast<size_t>(i)];
    l.mlp = LayerSpec::Mlp::kExperts;
    if ((i + 1) % pattern != 0) l.window = window;
  }
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  k.whole("attention.sliding_window", sliding_window(c));
  k.whole("expert_count", c.num_experts);
  k.whole("expert_used_count", c.experts_per_token);
  k.whole("expert_feed_forward_length", c.moe_intermediate_size);
  write_gguf_rope(k, c);
}

std::string lacks(const ModelConfig& c) {
  if (!c.attention_bias) return "attention_bias: false of gpt-oss";
  if (c.tie_embeddings) return "tied embeddings of gpt-oss";
  if (c.glu_alpha != kAlpha) return fmt::format("swiglu_alpha {}", c.glu_alpha);
  if (c.glu_limit != kLimit) return fmt::format("swiglu_limit {}", c.glu_limit);
  if (sliding_window(c) == 0) return "gpt-oss without layers that slide";
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (c.layers[i].mlp != LayerSpec::Mlp::kExperts) return "experts in some layers alone";
    if ((c.layers[i].window > 0) != (i % 2 == 0)) return "layers that slide in another pattern than every second";
  }
  return gguf_lacks_activation(c);
}

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  j["num_local_experts"] = c.num_experts;
  j["num_experts_per_tok"] = c.experts_per_token;
  j["router_aux_loss_coef"] = c.router_aux_loss_coef;
  j["swiglu_limit"] = c.glu_limit;
  j["sliding_window"] = sliding_window(c);
  OrderedJson& types = j["layer_types"] = OrderedJson::array();
  for (const LayerSpec& l : c.layers) types.push_back(l.window > 0 ? "sliding_attention" : "full_attention");
}

}  // namespace

constinit const Family kGptOss = [] {
  Family f = decoder("gpt_oss", "GptOssForCausalLM");
  f.classifier = "GptOssForSequenceClassification";
  f.vocab_size = 201088;
  f.hidden_size = 2880;
  f.intermediate_size = 2880;
  f.num_layers = 36;
  f.num_heads = 64;
  f.num_kv_heads = 8;
  f.head_dim = 64;
  f.max_positions = 131072;
  f.norm_eps = 1e-5;
  f.rope_theta = 150000;
  f.attention_bias = true;
  f.windows = Windows::kMost;
  f.window = 128;
  f.window_pattern = 2;
  f.num_experts = 128;
  f.experts_per_token = 4;
  f.moe_intermediate_size = 2880;
  f.norm_topk_prob = true;
  f.turned_experts = f.stacked_adapters = true;
  f.read = read;
  gguf_decoder(f, "gpt-oss", write_gguf);
  f.gguf_block = kBlock;
  f.gguf_experts = kDecoderExperts;
  f.gguf_windows = true;
  f.gguf_yarn_truncates = false;  // as OpenAI has it, though llama.cpp rounds the range of every model
  f.gguf_lacks = lacks;
  f.read_gguf = read_gguf;
  f.write = write;
  return f;
}();

}  // namespace mxt::formats
