// Gemma 3 (Gemma Team 2025): the text model, alone or taken out of the whole one's files.
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/arch/families.h"
#include "formats/config/keys.h"

namespace mxt::formats {
namespace {

constexpr std::string_view kOwnKeys[] = {"query_pre_attn_scalar", "final_logit_softcapping"};
constexpr int64_t kPattern = 6;  // every so many layers one sees everything
constexpr double kScalar = 256;  // query_pre_attn_scalar

constexpr WeightName kBlock[] = {
    zero_centred("attn_norm", "input_layernorm", Extent::kWidth),
    {"attn_q", "self_attn.q_proj", Extent::kQuery, Extent::kWidth},
    {"attn_k", "self_attn.k_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_v", "self_attn.v_proj", Extent::kKeyValue, Extent::kWidth},
    {"attn_output", "self_attn.o_proj", Extent::kWidth, Extent::kQuery},
    zero_centred("attn_q_norm", "self_attn.q_norm", Extent::kHeadDim),
    zero_centred("attn_k_norm", "self_attn.k_norm", Extent::kHeadDim),
    zero_centred("post_attention_norm", "post_attention_layernorm", Extent::kWidth),
    zero_centred("ffn_norm", "pre_feedforward_layernorm", Extent::kWidth),
    {"ffn_gate", "mlp.gate_proj", Extent::kInner, Extent::kWidth},
    {"ffn_up", "mlp.up_proj", Extent::kInner, Extent::kWidth},
    {"ffn_down", "mlp.down_proj", Extent::kWidth, Extent::kInner},
    zero_centred("post_ffw_norm", "post_feedforward_layernorm", Extent::kWidth),
};
constexpr WeightName kTop[] = {{"token_embd", "model.embed_tokens", Extent::kVocab, Extent::kWidth},
                               zero_centred("output_norm", "model.norm", Extent::kWidth),
                               {"output", "lm_head", Extent::kVocab, Extent::kWidth}};

constexpr WeightName kWholeTop[] = {{"token_embd", "model.language_model.embed_tokens", Extent::kVocab, Extent::kWidth},
                                    zero_centred("output_norm", "model.language_model.norm", Extent::kWidth),
                                    {"output", "lm_head", Extent::kVocab, Extent::kWidth}};
// Files keep the names that transformers' class had before its modules were renamed.
constexpr std::string_view kOfWhole[] = {"language_model.model.", "model.language_model."};
constexpr std::string_view kOfText[] = {"language_model.model.", "model."};

void read(const Keys& k, ModelConfig& c) {
  if (k.boolean({"use_bidirectional_attention"}, false))
    fail_missing("{}: \"use_bidirectional_attention\" is not built in", k.source());
  c.query_scalar = k.number({"query_pre_attn_scalar"}, kScalar, 1e-6, 1e9);
}

// llama.cpp knows the scalar by the model's depth: the 27B model's is the width of its heads in the residual stream.
double gguf_scalar(const ModelConfig& c) {
  return static_cast<double>(c.num_layers == 62 ? c.hidden_size / c.num_heads : c.head_dim);
}

void read_gguf(const ArchKeys& k, ModelConfig& c) {
  c.query_scalar = gguf_scalar(c);
  c.sliding_rope_theta = k.number("rope.freq_base_swa", 10000.0, 1e-3, 1e15);
  const int64_t window = k.need("attention.sliding_window", 1, kMaxTokens);
  for (int64_t i = 0; i < c.num_layers; ++i)
    if ((i + 1) % kPattern != 0) c.layers[static_cast<size_t>(i)].window = window;
}

void write_gguf(const GgufKeys& k, const ModelConfig& c) {
  write_gguf_attention(k, c);
  k.whole("attention.sliding_window", sliding_window(c));
  write_gguf_rope(k, c);
}

std::string lacks(const ModelConfig& c) {
  if (c.attention_bias) return "attention_bias of Gemma 3";
  if (c.activation != "gelu_pytorch_tanh" && c.activation != "gelu_new")
    return fmt::format("the activation {} of this architecture", c.activation);
  if (c.query_scalar != gguf_scalar(c)) return fmt::format("query_pre_attn_scalar {}", c.query_scalar);
  if (c.sliding_rope_theta != 10000) return fmt::format("a rotary base of {} in sliding layers", c.sliding_rope_theta);
  if (c.final_logit_softcapping > 0) return "final_logit_softcapping of Gemma 3";
  for (int64_t i = 0; i < c.num_layers; ++i)
    if ((c.layers[static_cast<size_t>(i)].window > 0) != ((i + 1) % kPattern != 0))
      return "layers that slide in another pattern than five of six";
  return "";
}

void write(const ModelConfig& c, OrderedJson& j) {
  write_decoder(c, j);
  j.erase("hidden_act");
  j["hidden_activation"] = c.activation;
  j["rope_local_base_freq"] = c.sliding_rope_theta;
  if (c.query_scalar == std::floor(c.query_scalar))  // transformers wants a whole number to be written as one
    j["query_pre_attn_scalar"] = static_cast<int64_t>(c.query_scalar);
  else
    j["query_pre_attn_scalar"] = c.query_scalar;
  j["sliding_window"] = sliding_window(c);
  j["sliding_window_pattern"] = kPattern;
}

constexpr Family gemma3(std::string_view type, std::string_view architecture) {
  Family f = decoder(type, architecture);
  f.vocab_size = 262208;
  f.hidden_size = 2304;
  f.intermediate_size = 9216;
  f.num_layers = 26;
  f.num_heads = 8;
  f.num_kv_heads = 4;
  f.head_dim = 256;
  f.max_positions = 131072;
  f.rope_theta = 1e6;
  f.sliding_rope_theta = 10000;
  f.tie_embeddings = true;
  f.activation = "gelu_pytorch_tanh";
  f.activation_key = "hidden_activation";
  f.pad = 0;
  f.eos = 1;
  f.bos = 2;
  f.windows = Windows::kMost;
  f.own_keys = kOwnKeys;
  f.read = read;
  gguf_decoder(f, "gemma3", write_gguf);
  f.gguf_block = kBlock;
  f.gguf_top = kTop;
  f.gguf_windows = true;
  f.gguf_lacks = lacks;
  f.read_gguf = read_gguf;
  f.write = write;
  f.other_prefixes = kOfWhole;
  return f;
}

}  // namespace

constinit const Family kGemma3Text = [] {
  Family f = gemma3("gemma3_text", "Gemma3ForCausalLM");
  f.classifier = "Gemma3TextForSequenceClassification";
  return f;
}();
constinit const Family kGemma3 = [] {
  Family f = gemma3("gemma3", "Gemma3ForConditionalGeneration");
  f.prefix = "model.language_model.";
  f.other_prefixes = kOfText;
  f.blocks = "model.language_model.layers.";
  f.embedding = "model.language_model.embed_tokens.weight";
  f.gguf_top = kWholeTop;
  return f;
}();

}  // namespace mxt::formats
