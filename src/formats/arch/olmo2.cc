// OLMo 2 (OLMo et al. 2024): norms behind the blocks, and over whole queries and keys.
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr WeightName kBlock[] = {
    {"attn_q", "self_attn.q_proj", Extent::kQuery, Extent::kWidth},
    {"attn_k", "self_attn.k_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_v", "self_attn.v_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    {"attn_q_norm", "self_attn.q_norm", Extent::kQuery},
    {"attn_k_norm", "self_attn.k_norm", Extent::kKeyValue},
    {"post_attention_norm", "post_attention_layernorm", Extent::kWidth},
    {"ffn_gate", "mlp.gate_proj", Extent::kInner, Extent::kWidth},
    {"ffn_up", "mlp.up_proj", Extent::kInner, Extent::kWidth},
    {"ffn_down", "mlp.down_proj", Extent::kWidth, Extent::kInner},
    {"post_ffw_norm", "post_feedforward_layernorm", Extent::kWidth},
};

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  write_gguf_rope(k, c);
}

std::string lacks(const ModelConfig& c) {
  if (c.attention_bias) return "attention_bias of OLMo 2";
  return gguf_lacks_activation(c);
}

}  // namespace

constinit const Family kOlmo2 = [] {
  Family f = decoder("olmo2", "Olmo2ForCausalLM");
  f.classifier = "Olmo2ForSequenceClassification";
  f.vocab_size = 50304;
  f.hidden_size = 4096;
  f.intermediate_size = 11008;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.kv_heads_follow = true;
  f.max_positions = 2048;
  f.norm_eps = 1e-5;
  f.eos = 50279;
  f.pad = 1;
  gguf_decoder(f, "olmo2", write_gguf);
  f.gguf_block = kBlock;
  f.gguf_lacks = lacks;
  return f;
}();

}  // namespace mxt::formats
