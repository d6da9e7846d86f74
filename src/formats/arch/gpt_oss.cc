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

}  // namespace

constinit const Family kGptOss = [] {
  Family f = decoder("gpt_oss", "GptOssForCausalLM");
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
  f.write = nullptr;
  return f;
}();

}  // namespace mxt::formats
