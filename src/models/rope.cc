// Rotary frequencies as transformers' modeling_rope_utils computes them, in fp32 where it does so.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "formats/family.h"
#include "models/model.h"

namespace mxt::models {
namespace {

using Kind = formats::RopeScaling::Kind;

// Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones kept, between them a blend.
float llama3(float inv_freq, const formats::RopeScaling& s) {
  const double original = static_cast<double>(s.original_max_positions), wavelength = 2 * std::numbers::pi / inv_freq;
  if (wavelength < original / s.high_freq_factor) return inv_freq;
  if (wavelength > original / s.low_freq_factor) return static_cast<float>(inv_freq / s.factor);
  const double smooth = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>((1 - smooth) * inv_freq / s.factor + smooth * inv_freq);
}

// YaRN (Peng et al. 2023): a ramp over dimensions between interpolated and kept frequencies.
void yarn(std::vector<float>& inv_freq, const formats::ModelConfig& c) {
  const auto& s = c.rope_scaling;
  const double original =
      static_cast<double>(s.original_max_positions > 0 ? s.original_max_positions : c.max_positions);
  const double dim = static_cast<double>(formats::stated_rotary(c));
  auto correction = [&](double rotations) {
    return dim * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(c.rope_theta));
  };
  double low = correction(s.beta_fast), high = correction(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double keep = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = static_cast<float>(inv_freq[i] / s.factor * (1 - keep) + inv_freq[i] * keep);
  }
}

double attention_factor(const formats::ModelConfig& c) {
  const auto& s = c.rope_scaling;
  if (s.kind == Kind::kLongRope) {
    if (s.attention_factor) return *s.attention_factor;
    return s.factor <= 1 ? 1.0
                         : std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_max_positions)));
  }
  if (s.kind != Kind::kYarn) return 1;
  if (s.attention_factor) return *s.attention_factor;
  auto mscale = [&](double m) { return s.factor <= 1 ? 1.0 : 0.1 * m * std::log(s.factor) + 1; };
  if (s.mscale && s.mscale_all_dim) return mscale(*s.mscale) / mscale(*s.mscale_all_dim);
  return mscale(1);
}

std::vector<float> frequencies(double theta, const formats::ModelConfig& c) {
  std::vector<float> inv_freq(static_cast<size_t>(c.rotary() / 2));
  for (int64_t i = 0; i < c.rotary() / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(formats::stated_rotary(c));
    inv_freq[static_cast<size_t>(i)] = 1.0f / std::pow(static_cast<float>(theta), exponent);
  }
  return inv_freq;
}

void tables(const std::vector<float>& inv_freq, int64_t positions, float scale, std::vector<float>& cos,
            std::vector<float>& sin) {
  const auto half = static_cast<int64_t>(inv_freq.size());
  cos.resize(static_cast<size_t>(positions * half));
  sin.resize(static_cast<size_t>(positions * half));
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(p) * inv_freq[static_cast<size_t>(i)];  // the product in fp32, as there
      cos[static_cast<size_t>(p * half + i)] = static_cast<float>(std::cos(angle)) * scale;
      sin[static_cast<size_t>(p * half + i)] = static_cast<float>(std::sin(angle)) * scale;
    }
}

// LongRoPE (Ding et al. 2024): one set of divisors for texts within the original maximum, one for longer ones.
void longrope(std::vector<float>& inv_freq, const formats::ModelConfig& c, int64_t positions) {
  const auto& s = c.rope_scaling;
  const auto& by = positions > s.original_max_positions ? s.long_factor : s.short_factor;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent =
        static_cast<float>(2 * static_cast<int64_t>(i)) / static_cast<float>(formats::stated_rotary(c));
    inv_freq[i] = 1.0f / (by[i] * std::pow(static_cast<float>(c.rope_theta), exponent));
  }
}

}  // namespace

void sliding_rope_tables(const formats::ModelConfig& c, int64_t positions, std::vector<float>& cos,
                         std::vector<float>& sin) {
  tables(frequencies(c.sliding_rope_theta, c), positions, 1.0f, cos, sin);
}

void rope_tables(const formats::ModelConfig& c, int64_t positions, std::vector<float>& cos, std::vector<float>& sin) {
  std::vector<float> inv_freq = frequencies(c.rope_theta, c);
  switch (c.rope_scaling.kind) {
    case Kind::kNone:
    case Kind::kDynamic:  // it changes texts beyond max_position_embeddings alone, and tables end there
      break;
    case Kind::kLinear:
      for (float& f : inv_freq) f = static_cast<float>(f / c.rope_scaling.factor);
      break;
    case Kind::kLlama3:
      for (float& f : inv_freq) f = llama3(f, c.rope_scaling);
      break;
    case Kind::kDivisors:
      MXT_ASSERT(c.rope_scaling.divisors.size() == inv_freq.size());
      for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= c.rope_scaling.divisors[i];
      break;
    case Kind::kYarn:
      yarn(inv_freq, c);
      break;
    case Kind::kLongRope:
      longrope(inv_freq, c, positions);
      break;
  }
  tables(inv_freq, positions, static_cast<float>(attention_factor(c)), cos, sin);
}

}  // namespace mxt::models
