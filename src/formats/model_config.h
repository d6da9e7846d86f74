// A model's shape as Hugging Face's config.json or a GGUF's metadata state it. Names and defaults are transformers'.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/types.h"

namespace mxt::formats {

class Gguf;
struct Family;

// Frequencies of rotary embedding: transformers' `rope_scaling` / `rope_parameters`.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope, kDivisors };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  int64_t original_max_positions = 0;                    // yarn, llama3, longrope; 0 = not stated
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> attention_factor;  // yarn; absent = 0.1 ln(factor) + 1; longrope: √(1 + ln f / ln original)
  std::optional<double> mscale, mscale_all_dim;  // yarn
  bool truncate = true;                          // yarn: round the correction range
  std::vector<int64_t> mrope_section;            // Qwen-VL: how head_dim/2 splits over time, height, width
  std::vector<float> short_factor, long_factor;  // longrope: divisors, one a pair, to and beyond the original maximum
  std::vector<float> divisors;  // kDivisors: of the frequencies, one a pair, as a GGUF file may hold them
  bool operator==(const RopeScaling&) const = default;
};

// What one layer is made of.
struct LayerSpec {
  enum class Mixer : uint8_t { kAttention, kGatedDelta };
  enum class Mlp : uint8_t { kDense, kExperts };
  Mixer mixer = Mixer::kAttention;
  Mlp mlp = Mlp::kDense;
  int64_t window = 0;  // tokens that attention sees, the current one included; 0: all before it
  bool operator==(const LayerSpec&) const = default;
};

constexpr int64_t kMaxLayers = 1024;  // the deepest published models have under 200

struct ModelConfig {
  std::string architecture;        // "Qwen3ForCausalLM"; for a model with a vision part the whole one's name
  std::string model_type;          // "qwen3"
  const Family* family = nullptr;  // never null once read
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, num_kv_heads = 0;
  int64_t head_dim = 0, max_positions = 0;
  double norm_eps = 0, rope_theta = 0;  // rope_theta 0: the model has no rotary embedding
  double partial_rotary_factor = 1.0;   // part of head_dim that is rotated
  RopeScaling rope_scaling;
  double sliding_rope_theta = 0;  // of layers with a window, unscaled; 0: theirs are as the others'
  bool tie_embeddings = false, attention_bias = false, mlp_bias = false;
  std::string activation;                                  // transformers' name: silu, gelu_new, relu2, gelu
  double resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0;  // dropout while training
  double initializer_range = 0.02;
  int64_t bos = -1, pad = -1;  // −1: none
  std::vector<int64_t> eos;
  // Further ids at which an answer ends: generation_config.json's eos_token_id, a GGUF file's eot and eom.
  std::vector<int64_t> end_of_turn;
  std::optional<DType> dtype;  // how the checkpoint is held, where it says so
  std::string quantization;    // quantization_config.quant_method, or empty

  std::vector<LayerSpec> layers;  // num_layers of them

  // Mixture of experts; num_experts 0 = dense.
  int64_t num_experts = 0, experts_per_token = 0, moe_intermediate_size = 0, shared_expert_intermediate_size = 0;
  bool norm_topk_prob = false;
  double router_aux_loss_coef = 0;
  bool stacked_experts = false;         // of the files it came with: one tensor for all experts of a layer
  bool output_router_logits = false;    // the load-balancing loss is part of training
  double glu_alpha = 0, glu_limit = 0;  // of experts' clamped gates (gpt-oss: swiglu_alpha, swiglu_limit); 0 = none

  // Gated DeltaNet layers (qwen3_next, qwen3_5).
  int64_t linear_conv_kernel = 0, linear_key_head_dim = 0, linear_value_head_dim = 0;
  int64_t linear_key_heads = 0, linear_value_heads = 0;

  // qwen3_vl, from a GGUF: layers that a picture's features are added to. Its tower is a file of its own.
  int64_t deepstack_layers = 0;

  double final_logit_softcapping = 0;  // nanochat: cap·tanh(logits / cap); 0 = none
  int64_t type_vocab_size = 0;         // bert
  bool scale_attn_by_layer = false;    // gpt2: scale_attn_by_inverse_layer_idx
  bool scale_attn = true;              // gpt2: scale_attn_weights, scores over the root of head_dim
  double query_scalar = 0;             // scores over the root of this; 0: of head_dim (Gemma's query_pre_attn_scalar)

  // The file as it was (null for a GGUF): models take their rarer keys from here.
  std::shared_ptr<const OrderedJson> raw;

  int64_t rotary() const;  // coordinates of a head that are rotated
  // Throws kBadInput when the text part does not hold together (sizes out of range, heads that do not divide …).
  void check(std::string_view source) const;
};

// Known model types are the families of arch/. Another one is kMissing, by name. `source` is the file for messages.
ModelConfig parse_model_config(const OrderedJson& config, std::string_view source);
ModelConfig read_model_config(const std::string& folder_or_file);  // FOLDER/config.json

// GGUF files of the families that state their names there. Llama 3's frequency factors are recognised and stated as
// transformers does. Checks that tokens and embedding rows agree.
ModelConfig model_config_from_gguf(const Gguf& gguf);

// A config.json that transformers 4.5x and 5 both load. Starts from `raw` where there is one; a quantization_config
// is left out (the weights written beside it are plain), dtype is `dtype` where given.
OrderedJson to_hf_config(const ModelConfig& config, std::optional<DType> dtype = std::nullopt);

}  // namespace mxt::formats
