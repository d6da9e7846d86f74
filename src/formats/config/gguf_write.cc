// The keys by which a GGUF says what the model is: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "formats/config/gguf_write.h"

#include <cmath>
#include <numbers>

#include "base/log.h"
#include "formats/arch/families.h"
#include "formats/gguf_hf.h"

namespace mxt::formats {
namespace {

// What this file could not say: its reader would compute another model, without a word.
void check_expressible(const ModelConfig& c) {
  const auto refuse = [](const std::string& what) {
    fail_missing("a GGUF file cannot state {}: choose another scheme", what);
  };
  const RopeScaling& r = c.rope_scaling;
  if (r.kind == RopeScaling::Kind::kYarn && (r.attention_factor || r.mscale || r.mscale_all_dim || r.beta_fast != 32 ||
                                             r.beta_slow != 1 || r.truncate != c.family->gguf_yarn_truncates))
    refuse("this model's rope_scaling: yarn with its usual betas and attention factor alone");
  if (stated_rotary(c) % 2 != 0) refuse("frequencies of an odd number of rotated coordinates");
  if (const std::string what = c.family->gguf_lacks(c); !what.empty()) refuse(what);
  if (r.kind == RopeScaling::Kind::kLongRope && c.family->gguf_beside.empty()) refuse("LongRoPE of this architecture");
}

// Of families whose windows llama.cpp does not follow: as it states those of others.
void write_windows(const GgufKeys& k, const ModelConfig& c) {
  const int64_t window = sliding_window(c);
  if (window == 0) return;
  log::warn(
      "the file states this model's window of {} tokens, which llama.cpp does not follow in {} models: beyond it "
      "llama.cpp attends to what this program does not",
      window, c.family->gguf);
  k.whole("attention.sliding_window", window);
  if (sliding_layers(c) == c.num_layers) return;
  std::vector<uint64_t> slides;
  for (const LayerSpec& l : c.layers) slides.push_back(l.window > 0);
  k.switches("attention.sliding_window_pattern", std::move(slides));
}

// transformers' _compute_llama3_parameters, as divisors of the frequencies.
std::vector<float> llama3_divisors(const ModelConfig& c) {
  const RopeScaling& r = c.rope_scaling;
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

}  // namespace

std::vector<RopeTensor> rope_tensors(const ModelConfig& c) {
  const RopeScaling& r = c.rope_scaling;
  if (r.kind == RopeScaling::Kind::kLongRope)
    return {{"rope_factors_long.weight", r.long_factor}, {"rope_factors_short.weight", r.short_factor}};
  if (r.kind == RopeScaling::Kind::kDivisors) return {{"rope_freqs.weight", r.divisors}};
  if (r.kind == RopeScaling::Kind::kLlama3) return {{"rope_freqs.weight", llama3_divisors(c)}};
  return {};
}

void write_gguf_attention(const GgufKeys& k, const ModelConfig& c, bool always) {
  k.whole("attention.head_count_kv", c.num_kv_heads);
  k.real("attention.layer_norm_rms_epsilon", c.norm_eps);
  if (!always && c.head_dim * c.num_heads == c.hidden_size) return;
  k.whole("attention.key_length", c.head_dim);
  k.whole("attention.value_length", c.head_dim);
}

void write_gguf_rope(const GgufKeys& k, const ModelConfig& c) {
  k.real("rope.freq_base", c.rope_theta);
  const RopeScaling& r = c.rope_scaling;
  if (r.kind == RopeScaling::Kind::kLinear || r.kind == RopeScaling::Kind::kYarn) {
    k.text("rope.scaling.type", r.kind == RopeScaling::Kind::kYarn ? "yarn" : "linear");
    k.real("rope.scaling.factor", r.factor);
    if (r.original_max_positions > 0) k.whole("rope.scaling.original_context_length", r.original_max_positions);
    if (r.kind == RopeScaling::Kind::kYarn) {
      k.real("rope.scaling.yarn_beta_fast", r.beta_fast);
      k.real("rope.scaling.yarn_beta_slow", r.beta_slow);
    }
  }  // a dynamic one does nothing within the context length
}

void write_gguf_sections(const GgufKeys& k, const ModelConfig& c, const int64_t (&usual)[3]) {
  std::vector<int64_t> sections = c.rope_scaling.mrope_section;
  if (sections.empty()) sections.assign(std::begin(usual), std::end(usual));
  sections.resize(4);
  k.wholes("rope.dimension_sections", std::move(sections));
}

void write_gguf_model(GgufWriter& out, const ModelConfig& c, const std::string& name, uint32_t file_type) {
  check_gguf_family(c);
  check_expressible(c);
  out.add("general.architecture", GgufValue::text(std::string(c.family->gguf)));
  out.add("general.type", GgufValue::text("model"));
  out.add("general.name", GgufValue::text(name));
  out.add("general.file_type", GgufValue::u32(file_type));
  out.add("general.quantization_version", GgufValue::u32(2));
  const GgufKeys k(out, c.family->gguf);
  k.whole("block_count", c.num_layers);
  k.whole("context_length", c.max_positions);
  k.whole("embedding_length", c.hidden_size);
  // Qwen3.5's models of experts have no dense layers and no such size.
  if (c.shared_expert_intermediate_size == 0) k.whole("feed_forward_length", c.intermediate_size);
  k.whole("attention.head_count", c.num_heads);
  c.family->write_gguf(k, c);
  if (!c.family->gguf_windows) write_windows(k, c);
}

}  // namespace mxt::formats
