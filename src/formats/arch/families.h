// The families that this build knows, one file each, and what several of them share. Internal to the room.
#pragma once

#include <algorithm>
#include <array>

#include "formats/config/gguf_keys.h"
#include "formats/config/gguf_write.h"
#include "formats/config/limits.h"
#include "formats/family.h"

namespace mxt::formats {

extern const Family kLlama, kMistral, kInstella, kQwen2, kQwen3, kQwen3Moe, kQwen3Next, kQwen35, kQwen35Text,
    kQwen35Moe, kQwen35MoeText, kQwen3Vl, kQwen3VlText, kQwen3VlMoe, kQwen3VlMoeText, kOlmo2, kPhi3, kGemma3,
    kGemma3Text, kGptOss, kGpt2, kNanochat, kNanochatV2, kBert;

// Names of Llama's modules, which most decoders took over.
inline constexpr std::string_view kDecoderModules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                       "gate_proj", "up_proj", "down_proj"};
inline constexpr WeightName kDecoderBlock[] = {
    {"attn_norm", "input_layernorm", Extent::kWidth},
    {"attn_q", "self_attn.q_proj", Extent::kQuery, Extent::kWidth, WeightName::Turn::kQueryPairs},
    {"attn_k", "self_attn.k_proj", Extent::kKeyValue, Extent::kWidth, WeightName::Turn::kKeyPairs},
    {"attn_v", "self_attn.v_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    {"attn_q_norm", "self_attn.q_norm", Extent::kHeadDim},
    {"attn_k_norm", "self_attn.k_norm", Extent::kHeadDim},
    {"ffn_norm", "post_attention_layernorm", Extent::kWidth},
    {"ffn_gate", "mlp.gate_proj", Extent::kInner, Extent::kWidth},
    {"ffn_up", "mlp.up_proj", Extent::kInner, Extent::kWidth},
    {"ffn_down", "mlp.down_proj", Extent::kWidth, Extent::kInner},
};
inline constexpr WeightName kDecoderTop[] = {{"token_embd", "model.embed_tokens", Extent::kVocab, Extent::kWidth},
                                             {"output_norm", "model.norm", Extent::kWidth},
                                             {"output", "lm_head", Extent::kVocab, Extent::kWidth}};

inline constexpr WeightName kDecoderExperts[] = {{"ffn_gate_exps", "gate_proj", Extent::kExpertInner, Extent::kWidth},
                                                 {"ffn_up_exps", "up_proj", Extent::kExpertInner, Extent::kWidth},
                                                 {"ffn_down_exps", "down_proj", Extent::kWidth, Extent::kExpertInner}};

// A norm whose weight w stands for 1 + w, which llama.cpp adds beforehand.
constexpr WeightName zero_centred(std::string_view gguf, std::string_view hf, Extent n) {
  WeightName w{gguf, hf, n};
  w.plus_one = true;
  return w;
}
// Of the layers that slide, which all have one; 0 where none does.
inline int64_t sliding_window(const ModelConfig& c) {
  for (const LayerSpec& l : c.layers)
    if (l.window > 0) return l.window;
  return 0;
}

inline int64_t sliding_layers(const ModelConfig& c) {
  return std::count_if(c.layers.begin(), c.layers.end(), [](const LayerSpec& l) { return l.window > 0; });
}

template <size_t N, size_t M>
constexpr std::array<WeightName, N + M> joined(const WeightName (&a)[N], const WeightName (&b)[M]) {
  std::array<WeightName, N + M> out;
  std::copy_n(a, N, out.begin());
  std::copy_n(b, M, out.begin() + N);
  return out;
}

// config.json of a Llama-like decoder that came from a GGUF.
void write_decoder(const ModelConfig& c, OrderedJson& j);
void write_partial_rotary(const ModelConfig& c, OrderedJson& j);
void write_experts(const ModelConfig& c, OrderedJson& j);
// GGUF keys of key/value heads and epsilon; head_dim too where it is not width / heads, or `always`.
void write_gguf_attention(const GgufKeys& k, const ModelConfig& c, bool always = true);
void write_gguf_llama(const GgufKeys& k, const ModelConfig& c);  // of the two that llama.cpp calls llama
void write_gguf_rope(const GgufKeys& k, const ModelConfig& c);
// Positions of three axes (Qwen-VL's): pairs that turn by time, height and width, `usual` where the config says none;
// and config.json's one object of all that is rotary, which is where these classes read it.
void write_gguf_sections(const GgufKeys& k, const ModelConfig& c, const int64_t (&usual)[3]);
void write_rope_parameters(const ModelConfig& c, OrderedJson& j);
// What of a Llama-like decoder its GGUF cannot state: another activation than the gated silu that llama.cpp computes.
std::string gguf_lacks_activation(const ModelConfig& c);

// Where the rows of a family start from: Llama's names and modules.
constexpr Family decoder(std::string_view model_type, std::string_view architecture) {
  Family f{};
  f.model_type = model_type;
  f.architecture = architecture;
  f.norm_eps = 1e-6;
  f.rope_theta = 10000;
  f.lora_modules = kDecoderModules;
  f.write = write_decoder;
  return f;
}

constexpr void gguf_decoder(Family& f, std::string_view arch, void (*write)(const GgufKeys&, const ModelConfig&)) {
  f.gguf = arch;
  f.gguf_block = kDecoderBlock;
  f.gguf_top = kDecoderTop;
  f.write_gguf = write;
  f.gguf_lacks = gguf_lacks_activation;
}

}  // namespace mxt::formats
