#include "formats/gguf/k_quants.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/types.h"

namespace mxt::formats {
namespace {

constexpr float kTiny = 1e-15f;  // a group smaller than this is all zero

// Nearest whole number, ties to even, as the reference gets it: by adding 1.5 × 2^23.
int nearest_int(float v) {
  const float shifted = v + 12582912.0f;
  return static_cast<int>(std::bit_cast<uint32_t>(shifted) & 0x007fffff) - 0x00400000;
}

uint16_t put_half(uint8_t* p, float f) {
  const uint16_t h = float_to_f16(f);
  std::memcpy(p, &h, 2);
  return h;
}

struct Affine {
  float scale = 0, minimum = 0;  // value ≈ scale·q − minimum
};

// Weighted least squares for scale and minimum over 32 values: tries `steps` + 1 starting scales, for each assigns
// levels 0…top, solves the 2×2 system in closed form, and keeps the best by weighted squared error.
Affine fit_affine(std::span<const float, 32> x, std::span<const float, 32> weight, int top, float first, float delta,
                  int steps, uint8_t* levels) {
  float lo = x[0], hi = x[0], sum_w = weight[0], sum_x = sum_w * x[0];
  for (size_t i = 1; i < 32; ++i) {
    if (x[i] < lo) lo = x[i];
    if (x[i] > hi) hi = x[i];
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  if (lo > 0) lo = 0;
  std::memset(levels, 0, 32);
  if (hi == lo) return {0, -lo};
  const float inverse0 = static_cast<float>(top) / (hi - lo);
  float scale = 1 / inverse0, minimum = lo, best = 0;
  // Each try starts from the best minimum so far, not from the smallest value: the reference does so too.
  const auto level = [&](float inverse, float v) { return std::clamp(nearest_int(inverse * (v - minimum)), 0, top); };
  for (size_t i = 0; i < 32; ++i) {
    levels[i] = static_cast<uint8_t>(level(inverse0, x[i]));
    float diff = scale * static_cast<float>(levels[i]) + lo - x[i];
    diff = diff * diff;
    best += weight[i] * diff;
  }
  std::array<float, 32> q;
  for (int step = 0; step <= steps; ++step) {
    const float inverse = (first + delta * static_cast<float>(step) + static_cast<float>(top)) / (hi - minimum);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (size_t i = 0; i < 32; ++i) {
      const float l = q[i] = static_cast<float>(level(inverse, x[i]));
      sum_l += weight[i] * l;
      sum_l2 += weight[i] * l * l;
      sum_xl += weight[i] * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float s = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float m = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (m > 0) {
      m = 0;
      s = sum_xl / sum_l2;
    }
    float error = 0;
    for (size_t i = 0; i < 32; ++i) {
      float diff = s * q[i] + m - x[i];
      diff = diff * diff;
      error += weight[i] * diff;
    }
    if (error < best) {
      for (size_t i = 0; i < 32; ++i) levels[i] = static_cast<uint8_t>(q[i]);
      best = error;
      scale = s;
      minimum = m;
    }
  }
  return {scale, -minimum};
}

// What Q4_K and Q5_K share: eight groups with a six-bit scale and minimum each. Fills the first 16 bytes and the
// levels.
void affine_block(const float* x, uint8_t* b, int top, float first, int steps, std::array<uint8_t, 256>& levels) {
  std::array<Affine, 8> groups;
  float max_scale = 0, max_minimum = 0;
  for (size_t g = 0; g < 8; ++g) {
    const std::span<const float, 32> v(x + 32 * g, 32);
    float sum = 0;
    for (float f : v) sum += f * f;
    const float mean = std::sqrt(sum / 32);
    std::array<float, 32> weight;
    for (size_t i = 0; i < 32; ++i) weight[i] = mean + std::fabs(v[i]);
    groups[g] = fit_affine(v, weight, top, first, 0.1f, steps, &levels[32 * g]);
    max_scale = std::max(max_scale, groups[g].scale);
    max_minimum = std::max(max_minimum, groups[g].minimum);
  }
  const float inverse_scale = max_scale > 0 ? 63.0f / max_scale : 0.0f;
  const float inverse_minimum = max_minimum > 0 ? 63.0f / max_minimum : 0.0f;
  const float d = f16_to_float(put_half(b, max_scale / 63.0f));
  const float dmin = f16_to_float(put_half(b + 2, max_minimum / 63.0f));
  uint8_t* packed = b + 4;
  std::memset(packed, 0, 12);
  for (size_t g = 0; g < 8; ++g) {
    const auto s =
        static_cast<uint8_t>(std::min<int>(63, static_cast<uint8_t>(nearest_int(inverse_scale * groups[g].scale))));
    const auto m =
        static_cast<uint8_t>(std::min<int>(63, static_cast<uint8_t>(nearest_int(inverse_minimum * groups[g].minimum))));
    if (g < 4) {
      packed[g] |= s;
      packed[g + 4] |= m;
    } else {
      packed[g + 4] = static_cast<uint8_t>((s & 15) | (m & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>(s >> 4 << 6);
      packed[g] |= static_cast<uint8_t>(m >> 4 << 6);
    }
    // The levels again, for the scale and minimum as stored; with a scale of 0 they do not matter and stay.
    const float step = d * static_cast<float>(s), offset = dmin * static_cast<float>(m);
    if (step == 0) continue;
    for (size_t i = 32 * g; i < 32 * g + 32; ++i)
      levels[i] = static_cast<uint8_t>(std::clamp(nearest_int((x[i] + offset) / step), 0, top));
  }
}

// Best symmetric scale for 16 values: tries 19 scales about −32/extreme, weighs by x². Levels are 0…63 for −32…31;
// those of a group of zeros are 0 (they decode to 0 all the same, since its scale is).
float fit_symmetric(const float* x, uint8_t* levels) {
  constexpr int kTop = 32;
  float extreme = 0, magnitude = 0;
  for (int i = 0; i < 16; ++i)
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      extreme = x[i];
    }
  std::memset(levels, 0, 16);
  if (magnitude < kTiny) return 0;
  float scale = 0, best = 0;
  const auto try_scale = [&](float inverse, bool first) {
    std::array<uint8_t, 16> q;
    float sum_lx = 0, sum_l2 = 0;
    for (size_t i = 0; i < 16; ++i) {
      const int l = std::clamp(nearest_int(inverse * x[i]), -kTop, kTop - 1);
      q[i] = static_cast<uint8_t>(l + kTop);
      const float w = x[i] * x[i];
      sum_lx += w * x[i] * static_cast<float>(l);
      sum_l2 += w * static_cast<float>(l) * static_cast<float>(l);
    }
    if (first || (sum_l2 > 0 && sum_lx * sum_lx > best * sum_l2)) {
      scale = sum_l2 > 0 ? sum_lx / sum_l2 : 0.0f;
      best = scale * sum_lx;
      std::memcpy(levels, q.data(), 16);
    }
  };
  try_scale(-static_cast<float>(kTop) / extreme, true);
  for (int i = -9; i <= 9; ++i)
    if (i != 0) try_scale(-(static_cast<float>(kTop) + 0.1f * static_cast<float>(i)) / extreme, false);
  return scale;
}

}  // namespace

void encode_q4_k(const float* x, uint8_t* b) {
  std::array<uint8_t, 256> q;
  affine_block(x, b, 15, -1.0f, 20, q);
  uint8_t* out = b + 16;
  for (size_t half = 0; half < 256; half += 64)
    for (size_t j = 0; j < 32; ++j) *out++ = static_cast<uint8_t>(q[half + j] | q[half + 32 + j] << 4);
}

void encode_q5_k(const float* x, uint8_t* b) {
  std::array<uint8_t, 256> q;
  affine_block(x, b, 31, -0.5f, 15, q);
  uint8_t *high = b + 16, *low = b + 48;
  std::memset(high, 0, 32);
  for (size_t g = 0; g < 8; g += 2)
    for (size_t j = 0; j < 32; ++j) {
      const uint8_t a = q[g * 32 + j], c = q[g * 32 + 32 + j];
      *low++ = static_cast<uint8_t>((a & 15) | (c & 15) << 4);
      high[j] |= static_cast<uint8_t>((a >> 4) << g | (c >> 4) << (g + 1));
    }
}

void encode_q6_k(const float* x, uint8_t* b) {
  std::array<uint8_t, 256> q;
  std::array<float, 16> scales;
  float extreme = 0, magnitude = 0;
  for (size_t g = 0; g < 16; ++g) {
    scales[g] = fit_symmetric(x + 16 * g, &q[16 * g]);
    if (std::fabs(scales[g]) > magnitude) {
      magnitude = std::fabs(scales[g]);
      extreme = scales[g];
    }
  }
  if (magnitude < kTiny) {
    std::memset(b, 0, 210);
    return;
  }
  const float inverse = -128.0f / extreme;
  const float d = f16_to_float(put_half(b + 208, 1 / inverse));
  for (size_t g = 0; g < 16; ++g) {
    const auto s = static_cast<int8_t>(std::min(127, nearest_int(inverse * scales[g])));
    b[192 + g] = static_cast<uint8_t>(s);
    const float step = d * static_cast<float>(s);
    if (step == 0) continue;
    for (size_t i = g * 16; i < g * 16 + 16; ++i)
      q[i] = static_cast<uint8_t>(std::clamp(nearest_int(x[i] / step), -32, 31) + 32);
  }
  uint8_t *low = b, *high = b + 128;
  for (size_t half = 0; half < 256; half += 128)
    for (size_t j = 0; j < 32; ++j) {
      const uint8_t* v = &q[half + j];
      low[half / 2 + j] = static_cast<uint8_t>((v[0] & 15) | (v[64] & 15) << 4);
      low[half / 2 + 32 + j] = static_cast<uint8_t>((v[32] & 15) | (v[96] & 15) << 4);
      high[half / 4 + j] = static_cast<uint8_t>(v[0] >> 4 | v[32] >> 4 << 2 | v[64] >> 4 << 4 | v[96] >> 4 << 6);
    }
}

}  // namespace mxt::formats
