// Qwen3-Next, Qwen3.5 and 3.6: layers of gated DeltaNet with full attention between, dense or with experts.
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"q_proj",    "k_proj",    "v_proj",   "o_proj",    "in_proj_qkv", "in_proj_z",
                                         "in_proj_b", "in_proj_a", "out_proj", "gate_proj", "up_proj",     "down_proj"};
constexpr std::string_view kText[] = {"model."}, kWhole[] = {"model.language_model."};

// The whole model's files hold the text model under a name of its own; either class reads the other's.
constexpr Family whole(Family f) {
  f.prefix = kWhole[0];
  f.other_prefixes = kText;
  f.blocks = "model.language_model.layers.";
  f.embedding = "model.language_model.embed_tokens.weight";
  f.optional_vision = true;
  return f;
}

constexpr Family hybrid(std::string_view type, std::string_view architecture) {
  Family f = decoder(type, architecture);
  f.max_positions = 32768;
  f.head_dim = 256;
  f.partial_rotary_factor = 0.25;
  f.linear_attention = true;
  f.lora_modules = kModules;
  f.other_prefixes = kWhole;
  return f;
}

constexpr void experts(Family& f, int64_t experts, int64_t chosen) {
  f.hidden_size = 2048;
  f.intermediate_size = 5632;
  f.num_heads = 16;
  f.num_kv_heads = 2;
  f.num_experts = experts;
  f.stacked_adapters = true;
  f.experts_per_token = chosen;
  f.moe_intermediate_size = f.shared_expert_intermediate_size = 512;
  f.norm_topk_prob = true;
}

constexpr Family qwen3_5(std::string_view type, std::string_view architecture) {
  Family f = hybrid(type, architecture);
  f.vocab_size = 248320;
  f.hidden_size = 4096;
  f.intermediate_size = 12288;
  f.num_layers = 32;
  f.num_heads = 16;
  f.num_kv_heads = 4;
  return f;
}

constexpr Family qwen3_5_moe(std::string_view type, std::string_view architecture) {
  Family f = hybrid(type, architecture);
  f.vocab_size = 248320;
  f.num_layers = 40;
  experts(f, 256, 8);
  return f;
}

}  // namespace

constinit const Family kQwen3Next = [] {
  Family f = hybrid("qwen3_next", "Qwen3NextForCausalLM");
  f.vocab_size = 151936;
  f.num_layers = 48;
  experts(f, 512, 10);
  return f;
}();

constinit const Family kQwen35 = whole(qwen3_5("qwen3_5", "Qwen3_5ForConditionalGeneration"));
constinit const Family kQwen35Text = qwen3_5("qwen3_5_text", "Qwen3_5ForCausalLM");
constinit const Family kQwen35Moe = whole(qwen3_5_moe("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"));
constinit const Family kQwen35MoeText = qwen3_5_moe("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM");

}  // namespace mxt::formats
