#include "formats/config/families.h"

namespace mxt::formats {
namespace {

// Defaults of transformers 5's configuration classes; those of Instella (whose class ships with the model) are
// Instella-3B's own sizes. Rows of one family differ only where named.
constexpr Family kLlama{.model_type = "llama",
                        .architecture = "LlamaForCausalLM",
                        .vocab_size = 32000,
                        .hidden_size = 4096,
                        .intermediate_size = 11008,
                        .num_layers = 32,
                        .num_heads = 32,
                        .num_kv_heads = 32,
                        .kv_heads_follow = true,
                        .head_dim = 0,
                        .max_positions = 2048,
                        .norm_eps = 1e-6,
                        .rope_theta = 10000,
                        .reads_mlp_bias = true,
                        .bos = 1,
                        .eos = 2};

constexpr Family mistral() {
  Family f = kLlama;
  f.model_type = "mistral";
  f.architecture = "MistralForCausalLM";
  f.intermediate_size = 14336;
  f.num_kv_heads = 8;
  f.kv_heads_follow = false;
  f.max_positions = 131072;
  f.reads_attention_bias = f.reads_mlp_bias = false;
  f.sliding = true;
  return f;
}

constexpr Family instella() {
  Family f = kLlama;
  f.model_type = "instella";
  f.architecture = "InstellaForCausalLM";
  f.vocab_size = 50304;
  f.hidden_size = 2560;
  f.intermediate_size = 6912;
  f.num_layers = 36;
  f.max_positions = 4096;
  f.norm_eps = 1e-5;
  f.bos = -1;
  f.eos = 0;
  f.pad = 1;
  return f;
}

constexpr Family kQwen3{.model_type = "qwen3",
                        .architecture = "Qwen3ForCausalLM",
                        .vocab_size = 151936,
                        .hidden_size = 4096,
                        .intermediate_size = 22016,
                        .num_layers = 32,
                        .num_heads = 32,
                        .num_kv_heads = 32,
                        .kv_heads_follow = false,
                        .head_dim = 128,
                        .max_positions = 32768,
                        .norm_eps = 1e-6,
                        .rope_theta = 10000,
                        .has_window_switch = true};

constexpr Family qwen2() {
  Family f = kQwen3;
  f.model_type = "qwen2";
  f.architecture = "Qwen2ForCausalLM";
  f.head_dim = 0;
  f.attention_bias = true;  // on q, k and v; never on o
  f.reads_attention_bias = false;
  return f;
}

constexpr Family qwen3_moe() {
  Family f = kQwen3;
  f.model_type = "qwen3_moe";
  f.architecture = "Qwen3MoeForCausalLM";
  f.hidden_size = 2048;
  f.intermediate_size = 6144;
  f.num_layers = 24;
  f.num_kv_heads = 4;
  f.head_dim = 0;
  f.num_experts = 128;
  f.experts_per_token = 8;
  f.moe_intermediate_size = 768;
  return f;
}

constexpr Family qwen3_next() {
  Family f = kQwen3;
  f.model_type = "qwen3_next";
  f.architecture = "Qwen3NextForCausalLM";
  f.hidden_size = 2048;
  f.intermediate_size = 5632;
  f.num_layers = 48;
  f.num_heads = 16;
  f.num_kv_heads = 2;
  f.head_dim = 256;
  f.partial_rotary_factor = 0.25;
  f.has_window_switch = false;
  f.linear_attention = true;
  f.num_experts = 512;
  f.experts_per_token = 10;
  f.moe_intermediate_size = 512;
  f.shared_expert_intermediate_size = 512;
  f.norm_topk_prob = true;
  return f;
}

constexpr Family qwen3_5(std::string_view type, std::string_view architecture) {
  Family f = qwen3_next();
  f.model_type = type;
  f.architecture = architecture;
  f.vocab_size = 248320;
  f.hidden_size = 4096;
  f.intermediate_size = 12288;
  f.num_layers = 32;
  f.num_kv_heads = 4;
  f.num_experts = f.experts_per_token = f.moe_intermediate_size = f.shared_expert_intermediate_size = 0;
  return f;
}

constexpr Family qwen3_5_moe(std::string_view type, std::string_view architecture) {
  Family f = qwen3_next();
  f.model_type = type;
  f.architecture = architecture;
  f.vocab_size = 248320;
  f.num_layers = 40;
  f.num_experts = 256;
  f.experts_per_token = 8;
  return f;
}

constexpr Family qwen3_vl(std::string_view type) {
  Family f = kQwen3;
  f.model_type = type;
  f.architecture = "Qwen3VLForConditionalGeneration";
  f.max_positions = 128000;
  f.rope_theta = 500000;
  f.has_window_switch = false;
  return f;
}

constexpr Family qwen3_vl_moe(std::string_view type) {
  Family f = qwen3_vl(type);
  f.architecture = "Qwen3VLMoeForConditionalGeneration";
  f.hidden_size = 2048;
  f.intermediate_size = 5632;
  f.num_layers = 24;
  f.num_heads = f.num_kv_heads = 16;
  f.head_dim = 0;
  f.num_experts = 60;
  f.experts_per_token = 4;
  f.moe_intermediate_size = 1408;
  f.norm_topk_prob = true;  // its class has no such key: the router always normalises
  f.tie_embeddings = type == "qwen3_vl_moe_text";
  return f;
}

constexpr Family kGpt2{.model_type = "gpt2",
                       .architecture = "GPT2LMHeadModel",
                       .vocab_size = 50257,
                       .hidden_size = 768,
                       .intermediate_size = 0,
                       .num_layers = 12,
                       .num_heads = 12,
                       .num_kv_heads = 0,
                       .kv_heads_follow = true,
                       .head_dim = 0,
                       .max_positions = 1024,
                       .norm_eps = 1e-5,
                       .rope_theta = 0,
                       .tie_embeddings = true,
                       .always_bias = true,
                       .activation = "gelu_new",
                       .dropout = 0.1,
                       .bos = 50256,
                       .eos = 50256};

constexpr Family kNanochat{.model_type = "nanochat",
                           .architecture = "NanoChatForCausalLM",
                           .vocab_size = 50304,
                           .hidden_size = 768,
                           .intermediate_size = 8192,
                           .num_layers = 12,
                           .num_heads = 6,
                           .num_kv_heads = 6,
                           .kv_heads_follow = false,
                           .head_dim = 0,
                           .max_positions = 2048,
                           .norm_eps = 1e-6,
                           .rope_theta = 10000,
                           .activation = "relu2",
                           .bos = 0,
                           .eos = 1,
                           .pad = 1,
                           .softcap = 15.0};

constexpr Family kBert{.model_type = "bert",
                       .architecture = "BertModel",
                       .vocab_size = 30522,
                       .hidden_size = 768,
                       .intermediate_size = 3072,
                       .num_layers = 12,
                       .num_heads = 12,
                       .num_kv_heads = 0,
                       .kv_heads_follow = true,
                       .head_dim = 0,
                       .max_positions = 512,
                       .norm_eps = 1e-12,
                       .rope_theta = 0,
                       .tie_embeddings = true,
                       .always_bias = true,
                       .activation = "gelu",
                       .dropout = 0.1,
                       .pad = 0};

constexpr Family kFamilies[] = {kLlama,
                                mistral(),
                                qwen2(),
                                kQwen3,
                                qwen3_moe(),
                                qwen3_next(),
                                qwen3_5("qwen3_5", "Qwen3_5ForConditionalGeneration"),
                                qwen3_5("qwen3_5_text", "Qwen3_5ForCausalLM"),
                                qwen3_5_moe("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
                                qwen3_5_moe("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
                                qwen3_vl("qwen3_vl"),
                                qwen3_vl("qwen3_vl_text"),
                                qwen3_vl_moe("qwen3_vl_moe"),
                                qwen3_vl_moe("qwen3_vl_moe_text"),
                                instella(),
                                kGpt2,
                                kNanochat,
                                kBert};

}  // namespace

const Family* family_of_type(std::string_view type) {
  for (const Family& f : kFamilies)
    if (f.model_type == type) return &f;
  return nullptr;
}

const Family* family_of_architecture(std::string_view architecture) {
  for (const Family& f : kFamilies)
    if (f.architecture == architecture) return &f;
  return nullptr;
}

std::string known_model_types() {
  std::string out;
  for (const Family& f : kFamilies) {
    if (!out.empty()) out += ", ";
    out += f.model_type;
  }
  return out;
}

}  // namespace mxt::formats
