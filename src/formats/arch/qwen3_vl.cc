// Qwen3-VL, dense: a text model and the tower that sees pictures. With experts the config is read, no more. A GGUF
// holds the text model; llama.cpp has the tower in a second file.
#include <nlohmann/json.hpp>

#include "formats/arch/families.h"
#include "formats/vision.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kText[] = {"model."}, kWhole[] = {"model.language_model."};

constexpr WeightName kWholeTop[] = {{"token_embd", "model.language_model.embed_tokens", Extent::kVocab, Extent::kWidth},
                                    {"output_norm", "model.language_model.norm", Extent::kWidth},
                                    {"output", "lm_head", Extent::kVocab, Extent::kWidth}};
constexpr int64_t kSections[] = {24, 20, 20};  // pairs that turn by time, height and width, where a config says none

void read_gguf(const ArchKeys& k, ModelConfig& c) {
  const auto sections = k.list("rope.dimension_sections");
  if (!sections) fail_input("{}: key \"{}\" is missing", k.file().path(), k.key("rope.dimension_sections"));
  auto& mine = c.rope_scaling.mrope_section;
  mine.assign(sections->begin(), sections->begin() + std::min<ptrdiff_t>(3, std::ssize(*sections)));
  int64_t pairs = 0;
  for (int64_t s : mine) pairs += s < 0 || s > c.head_dim ? c.head_dim : s;
  if (pairs != c.head_dim / 2)
    fail_input("{}: key \"{}\" has {} pairs, the heads {}", k.file().path(), k.key("rope.dimension_sections"), pairs,
               c.head_dim / 2);
  c.deepstack_layers = k.find("n_deepstack_layers", 0, c.num_layers).value_or(0);
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  write_gguf_sections(k, c, kSections);
  write_gguf_rope(k, c);
  const auto tower = vision_of(c);
  k.whole("n_deepstack_layers", tower ? std::ssize(tower->deepstack) : c.deepstack_layers);
}

std::string lacks(const ModelConfig& c) {
  if (c.attention_bias) return "attention_bias of Qwen3-VL";
  return gguf_lacks_activation(c);
}

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  write_rope_parameters(c, j);
}

// The whole model's files hold the text model under a name of its own.
constexpr Family whole(Family f) {
  f.vision = true;
  f.gguf_top = kWholeTop;
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
  gguf_decoder(f, "qwen3vl", write_gguf);
  f.gguf_lacks = lacks;
  f.read_gguf = read_gguf;
  f.write = write;
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
  f.architecture = "Qwen3VLTextModel";
  f.other_prefixes = kWhole;
  return f;
}();
constinit const Family kQwen3VlMoe = moe("qwen3_vl_moe");
constinit const Family kQwen3VlMoeText = moe("qwen3_vl_moe_text");

}  // namespace mxt::formats
