// The keys that llama.cpp asks a file for: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/log.h"
#include "quantize/internal.h"

namespace mxt::quantize {
namespace {

using formats::GgufValue;
using formats::ModelConfig;
using formats::RopeScaling;

std::string arch_of(const ModelConfig& c) {
  if (c.model_type == "mistral") return "llama";
  if (c.model_type == "qwen3_moe") return "qwen3moe";
  return c.model_type;
}

uint32_t u32(int64_t v) {
  MXT_ASSERT(v >= 0 && v <= UINT32_MAX);
  return static_cast<uint32_t>(v);
}

}  // namespace

std::vector<float> rope_divisors(const ModelConfig& c) {
  const RopeScaling& r = c.rope_scaling;
  if (r.kind == RopeScaling::Kind::kDivisors) return r.divisors;
  if (r.kind != RopeScaling::Kind::kLlama3) return {};
  // transformers' _compute_llama3_parameters, as divisors of the frequencies.
  std::vector<float> out;
  const double original = static_cast<double>(r.original_max_positions);
  const double long_wave = original / r.low_freq_factor, short_wave = original / r.high_freq_factor;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    const double wave =
        2 * std::numbers::pi * std::pow(c.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    double divisor = 1;
    if (wave > long_wave)
      divisor = r.factor;
    else if (wave >= short_wave) {
      const double smooth = (original / wave - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
      divisor = 1 / ((1 - smooth) / r.factor + smooth);
    }
    out.push_back(static_cast<float>(divisor));
  }
  return out;
}

// What this file could not say: its reader would compute another model, without a word.
void check_expressible(const ModelConfig& c) {
  const auto refuse = [](const std::string& what) {
    fail_missing("a GGUF file cannot state {}: choose another scheme", what);
  };
  const std::string arch = arch_of(c);
  const RopeScaling& r = c.rope_scaling;
  if (c.sliding_window > 0)
    log::warn("a GGUF file cannot state this model's sliding window: its readers attend to more than {} tokens back",
              c.sliding_window);
  if (r.kind == RopeScaling::Kind::kYarn &&
      (r.attention_factor || r.mscale || r.mscale_all_dim || r.beta_fast != 32 || r.beta_slow != 1 || !r.truncate))
    refuse("this model's rope_scaling: yarn with its usual betas and attention factor alone");
  if (!c.scale_attn) refuse("scale_attn_weights: false");
  if (c.scale_attn_by_layer) refuse("scale_attn_by_inverse_layer_idx");
  const bool gelu = arch == "gpt2";
  if (gelu ? !(c.activation == "gelu_new" || c.activation == "gelu_pytorch_tanh" || c.activation == "gelu")
           : (c.activation != "silu" && c.activation != "swish"))
    refuse(fmt::format("the activation {} of this architecture", c.activation));
  if (c.num_experts > 0 && !c.norm_topk_prob) refuse("norm_topk_prob: false");
  if (!c.mlp_only_layers.empty() || c.decoder_sparse_step != 1) refuse("experts in some layers alone");
  if (arch.starts_with("qwen3") && c.attention_bias) refuse("attention_bias of Qwen3");
}

void add_model_keys(formats::GgufWriter& out, const ModelConfig& c, const std::string& name, uint32_t file_type) {
  const std::string arch = arch_of(c);
  const auto key = [&](const char* k) { return arch + "." + k; };
  check_expressible(c);
  out.add("general.architecture", GgufValue::text(arch));
  out.add("general.type", GgufValue::text("model"));
  out.add("general.name", GgufValue::text(name));
  out.add("general.file_type", GgufValue::u32(file_type));
  out.add("general.quantization_version", GgufValue::u32(2));
  out.add(key("block_count"), GgufValue::u32(u32(c.num_layers)));
  out.add(key("context_length"), GgufValue::u32(u32(c.max_positions)));
  out.add(key("embedding_length"), GgufValue::u32(u32(c.hidden_size)));
  out.add(key("feed_forward_length"), GgufValue::u32(u32(c.intermediate_size)));
  out.add(key("attention.head_count"), GgufValue::u32(u32(c.num_heads)));
  if (arch == "gpt2") {
    out.add(key("attention.layer_norm_epsilon"), GgufValue::f32(static_cast<float>(c.norm_eps)));
    return;
  }
  out.add(key("attention.head_count_kv"), GgufValue::u32(u32(c.num_kv_heads)));
  out.add(key("attention.layer_norm_rms_epsilon"), GgufValue::f32(static_cast<float>(c.norm_eps)));
  if (arch != "qwen2" || c.head_dim * c.num_heads != c.hidden_size) {
    out.add(key("attention.key_length"), GgufValue::u32(u32(c.head_dim)));
    out.add(key("attention.value_length"), GgufValue::u32(u32(c.head_dim)));
  }
  if (arch == "llama") {
    out.add(key("vocab_size"), GgufValue::u32(u32(c.vocab_size)));
    out.add(key("rope.dimension_count"), GgufValue::u32(u32(c.rotary())));
  }
  out.add(key("rope.freq_base"), GgufValue::f32(static_cast<float>(c.rope_theta)));
  const RopeScaling& r = c.rope_scaling;
  if (r.kind == RopeScaling::Kind::kLinear || r.kind == RopeScaling::Kind::kYarn) {
    out.add(key("rope.scaling.type"), GgufValue::text(r.kind == RopeScaling::Kind::kYarn ? "yarn" : "linear"));
    out.add(key("rope.scaling.factor"), GgufValue::f32(static_cast<float>(r.factor)));
    if (r.original_max_positions > 0)
      out.add(key("rope.scaling.original_context_length"), GgufValue::u32(u32(r.original_max_positions)));
  }  // a dynamic one does nothing within the context length
  if (c.num_experts > 0) {
    out.add(key("expert_count"), GgufValue::u32(u32(c.num_experts)));
    out.add(key("expert_used_count"), GgufValue::u32(u32(c.experts_per_token)));
    out.add(key("expert_feed_forward_length"), GgufValue::u32(u32(c.moe_intermediate_size)));
  }
}

void add_tokenizer_keys(formats::GgufWriter& out, const ModelConfig& c, const tokenizer::Tokenizer& tok) {
  tokenizer::GgufTokenizerData d = tok.to_gguf();
  if (static_cast<int64_t>(d.tokens.size()) > c.vocab_size)
    fail_input("the tokenizer has {} tokens, the model {} rows: they do not belong together", d.tokens.size(),
               c.vocab_size);
  // Rows without a token get a name that nothing encodes to.
  for (auto i = static_cast<int64_t>(d.tokens.size()); i < c.vocab_size; ++i) {
    d.tokens.push_back(fmt::format("[PAD{}]", i));
    d.token_type.push_back(5);
  }
  out.add("tokenizer.ggml.model", GgufValue::text(d.model));
  out.add("tokenizer.ggml.pre", GgufValue::text(d.pre));
  out.add("tokenizer.ggml.tokens", GgufValue::strings(std::move(d.tokens)));
  out.add("tokenizer.ggml.token_type", GgufValue::i32s({d.token_type.begin(), d.token_type.end()}));
  out.add("tokenizer.ggml.merges", GgufValue::strings(std::move(d.merges)));
  // The model's own id of the end where the tokenizer names none.
  const auto id = [&](const char* k, int64_t v) {
    if (v >= 0) out.add(std::string("tokenizer.ggml.") + k, GgufValue::u32(u32(v)));
  };
  id("bos_token_id", d.bos_id >= 0 ? d.bos_id : c.bos);
  id("eos_token_id", d.eos_id >= 0 ? d.eos_id : c.eos.empty() ? -1 : c.eos[0]);
  id("padding_token_id", d.pad_id >= 0 ? d.pad_id : c.pad);
  id("unknown_token_id", d.unk_id);
  out.add("tokenizer.ggml.add_bos_token", GgufValue::boolean(d.add_bos));
  if (!d.chat_template.empty()) out.add("tokenizer.chat_template", GgufValue::text(d.chat_template));
  if (!d.tool_template.empty()) {
    out.add("tokenizer.chat_templates", GgufValue::strings({"tool_use"}));
    out.add("tokenizer.chat_template.tool_use", GgufValue::text(d.tool_template));
  }
}

}  // namespace mxt::quantize
