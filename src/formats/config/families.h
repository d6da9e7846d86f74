// What transformers' config classes default to, one row a model type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mxt::formats {

struct Family {
  std::string_view model_type, architecture;
  int64_t vocab_size, hidden_size, intermediate_size /* 0 = four times the width */, num_layers, num_heads,
      num_kv_heads;
  bool kv_heads_follow;  // an absent num_key_value_heads means as many as heads
  int64_t head_dim;      // 0 = hidden_size / num_heads
  int64_t max_positions;
  double norm_eps, rope_theta /* 0 = none */;
  double partial_rotary_factor = 1.0;
  bool tie_embeddings = false;
  bool attention_bias = false, always_bias = false;
  bool reads_attention_bias = true, reads_mlp_bias = false;  // whether the class has these keys; else they say nothing
  std::string_view activation = "silu";
  double dropout = 0;
  int64_t bos = -1, eos = -1, pad = -1;
  bool has_window_switch = false;  // use_sliding_window
  bool sliding = false;            // a sliding_window key counts without a switch
  bool linear_attention = false;
  int64_t num_experts = 0, experts_per_token = 0, moe_intermediate_size = 0, shared_expert_intermediate_size = 0;
  bool norm_topk_prob = false;
  double softcap = 0;
};

const Family* family_of_type(std::string_view model_type);            // null where unknown
const Family* family_of_architecture(std::string_view architecture);  // null where unknown
std::string known_model_types();

}  // namespace mxt::formats
