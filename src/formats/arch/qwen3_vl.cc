// Qwen3-VL, dense: a text model and the tower that sees pictures. With experts the config is read, no more.
#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kText[] = {"model."}, kWhole[] = {"model.language_model."};

// The whole model's files hold the text model under a name of its own.
constexpr Family whole(Family f) {
  f.prefix = "model.language_model.";
  f.other_prefixes = kText;
  f.blocks = "model.language_model.layers.";
  f.embedding = "model.language_model.embed_tokens.weight";
  return f;
}

constexpr Family dense(std::string_view type) {
  Family f = decoder(type, "Qwen3VLForConditionalGeneration");
  f.vocab_size = 151936;
  f.hidden_size = 4096;
  f.intermediate_size = 22016;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.head_dim = 128;
  f.max_positions = 128000;
  f.rope_theta = 500000;
  return f;
}

constexpr Family moe(std::string_view type) {
  Family f = decoder(type, "Qwen3VLMoeForConditionalGeneration");
  f.vocab_size = 151936;
  f.hidden_size = 2048;
  f.intermediate_size = 5632;
  f.num_layers = 24;
  f.num_heads = f.num_kv_heads = 16;
  f.max_positions = 128000;
  f.rope_theta = 500000;
  f.num_experts = 60;
  f.experts_per_token = 4;
  f.moe_intermediate_size = 1408;
  f.norm_topk_prob = true;  // its class has no such key: the router always normalises
  f.tie_embeddings = type == "qwen3_vl_moe_text";
  return f;
}

}  // namespace

constinit const Family kQwen3Vl = whole(dense("qwen3_vl"));
// The text by itself, also over the whole model's files: without pictures its three positions are one.
constinit const Family kQwen3VlText = [] {
  Family f = dense("qwen3_vl_text");
  f.other_prefixes = kWhole;
  return f;
}();
constinit const Family kQwen3VlMoe = moe("qwen3_vl_moe");
constinit const Family kQwen3VlMoeText = moe("qwen3_vl_moe_text");

}  // namespace mxt::formats
