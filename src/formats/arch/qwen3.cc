// Qwen3, dense and with experts (Yang et al. 2025).
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  write_gguf_rope(k, c);
}

void write_gguf_moe(const GgufKeys& k, const ModelConfig& c) {
  write_gguf(k, c);
  k.whole("expert_count", c.num_experts);
  k.whole("expert_used_count", c.experts_per_token);
  k.whole("expert_feed_forward_length", c.moe_intermediate_size);
}

void read_gguf_moe(const ArchKeys& k, ModelConfig& c) {
  c.num_experts = k.need("expert_count", 1, kMaxCount);
  c.experts_per_token = k.need("expert_used_count", 1, kMaxCount);
  c.moe_intermediate_size = k.need("expert_feed_forward_length", 1, kMaxWidth);
  c.norm_topk_prob = true;  // llama.cpp always does for this architecture
  c.router_aux_loss_coef = 0.001;
  if (c.intermediate_size == 0) c.intermediate_size = c.moe_intermediate_size;
  for (LayerSpec& l : c.layers) l.mlp = LayerSpec::Mlp::kExperts;
}

std::string lacks(const ModelConfig& c) {
  if (c.attention_bias) return "attention_bias of Qwen3";
  return gguf_lacks_activation(c);
}

std::string lacks_moe(const ModelConfig& c) {
  if (!c.norm_topk_prob) return "norm_topk_prob: false";
  for (const LayerSpec& l : c.layers)
    if (l.mlp != LayerSpec::Mlp::kExperts) return "experts in some layers alone";
  return lacks(c);
}

void write_moe(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  write_experts(c, j);
}

constexpr auto kMoeBlock = joined(kDecoderBlock, {{"ffn_gate_inp", "mlp.gate", Extent::kExperts, Extent::kWidth}});

}  // namespace

constinit const Family kQwen3 = [] {
  Family f = decoder("qwen3", "Qwen3ForCausalLM");
  f.classifier = "Qwen3ForSequenceClassification";
  f.vocab_size = 151936;
  f.hidden_size = 4096;
  f.intermediate_size = 22016;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.head_dim = 128;
  f.max_positions = 32768;
  f.windows = Windows::kSwitch;
  gguf_decoder(f, "qwen3", write_gguf);
  f.gguf_lacks = lacks;
  return f;
}();

constinit const Family kQwen3Moe = [] {
  Family f = decoder("qwen3_moe", "Qwen3MoeForCausalLM");
  f.classifier = "Qwen3MoeForSequenceClassification";
  f.vocab_size = 151936;
  f.hidden_size = 2048;
  f.intermediate_size = 6144;
  f.num_layers = 24;
  f.num_heads = 32;
  f.num_kv_heads = 4;
  f.max_positions = 32768;
  f.windows = Windows::kSwitchAll;
  f.num_experts = 128;
  f.experts_per_token = 8;
  f.moe_intermediate_size = 768;
  f.write = write_moe;
  gguf_decoder(f, "qwen3moe", write_gguf_moe);
  f.gguf_block = kMoeBlock;
  f.gguf_experts = kDecoderExperts;
  f.gguf_lacks = lacks_moe;
  f.read_gguf = read_gguf_moe;
  return f;
}();

}  // namespace mxt::formats
