// Phi-3 and Phi-4 (Abdin et al. 2024): fused projections, a part of each head unrotated, LongRoPE.
#include <cmath>

#include "formats/arch/families.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kModules[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"};
constexpr std::string_view kBeside[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
constexpr WeightName kBlock[] = {
    {"attn_norm", "input_layernorm", Extent::kWidth},
    {"attn_qkv", "self_attn.qkv_proj", Extent::kQkv, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    {"ffn_norm", "post_attention_layernorm", Extent::kWidth},
    {"ffn_up", "mlp.gate_up_proj", Extent::kGateUp, Extent::kWidth},
    {"ffn_down", "mlp.down_proj", Extent::kWidth, Extent::kInner},
};

std::vector<float> factors(const Gguf& g, const char* name, int64_t pairs) {
  const GgufTensor* t = g.find(name);
  if (!t) fail_input("{}: has one tensor of rope_factors, but not {}", g.path(), name);
  if (t->columns() != pairs || t->rows() != 1)
    fail_input("{}: {} holds {} values, not {}", g.path(), name, t->columns() * t->rows(), pairs);
  std::vector<float> out(static_cast<size_t>(pairs));
  g.dequantize(*t, out.data());
  for (float x : out)
    if (!(x > 0 && x < 1e6f)) fail_input("{}: {} holds {}: divisors above 0 are wanted", g.path(), name, x);
  return out;
}

// What transformers multiplies cosines and sines with where a config does not say.
double usual_attention_factor(const RopeScaling& r) {
  return r.factor <= 1 ? 1
                       : std::sqrt(1 + std::log(r.factor) / std::log(static_cast<double>(r.original_max_positions)));
}

void read_gguf(const ArchKeys& k, ModelConfig& c) {
  const int64_t window = k.find("attention.sliding_window", 0, kMaxTokens).value_or(0);
  for (LayerSpec& l : c.layers) l.window = window < c.max_positions ? window : 0;
  const Gguf& g = k.file();
  if (!g.find(kBeside[0]) && !g.find(kBeside[1])) return;
  RopeScaling r;
  r.kind = RopeScaling::Kind::kLongRope;
  r.original_max_positions = k.need("rope.scaling.original_context_length", 1, int64_t{1} << 40);
  r.factor = static_cast<double>(c.max_positions) / static_cast<double>(r.original_max_positions);
  r.long_factor = factors(g, "rope_factors_long.weight", c.rotary() / 2);
  r.short_factor = factors(g, "rope_factors_short.weight", c.rotary() / 2);
  if (const auto f = g.number(k.key("rope.scaling.attn_factor")); f && std::abs(*f - usual_attention_factor(r)) > 1e-6)
    r.attention_factor = *f;
  c.rope_scaling = r;
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  k.whole("rope.dimension_count", c.rotary());
  k.whole("attention.sliding_window", c.layers[0].window);
  write_gguf_rope(k, c);
  const RopeScaling& r = c.rope_scaling;
  if (r.kind != RopeScaling::Kind::kLongRope) return;
  k.whole("rope.scaling.original_context_length", r.original_max_positions);
  k.real("rope.scaling.attn_factor", r.attention_factor.value_or(usual_attention_factor(r)));
}

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  write_partial_rotary(c, j);
}

}  // namespace

constinit const Family kPhi3 = [] {
  Family f = decoder("phi3", "Phi3ForCausalLM");
  f.classifier = "Phi3ForSequenceClassification";
  f.vocab_size = 32064;
  f.hidden_size = 3072;
  f.intermediate_size = 8192;
  f.num_layers = f.num_heads = f.num_kv_heads = 32;
  f.kv_heads_follow = true;
  f.max_positions = 4096;
  f.norm_eps = 1e-5;
  f.reads_partial_rotary = true;
  f.reads_attention_bias = false;
  f.bos = 1;
  f.eos = f.pad = 32000;
  f.windows = Windows::kAll;
  f.window = 0;
  f.lora_modules = kModules;
  gguf_decoder(f, "phi3", write_gguf);
  f.gguf_block = kBlock;
  f.gguf_beside = kBeside;
  f.gguf_windows = true;
  f.read_gguf = read_gguf;
  f.write = write;
  return f;
}();

}  // namespace mxt::formats
