// Block decoders. The order of the floating-point operations is that of ggml's reference and of gguf-py, so results are
// equal bit by bit (the build forbids contraction into FMA).
#include "base/ggml_blocks.h"

#include <array>
#include <bit>

namespace mxt {
namespace {

uint32_t u32_at(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// Blocks of 32: low nibbles are values 0–15, high nibbles 16–31.
void q4_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b[2 + j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((b[2 + j] >> 4) - 8);
  }
}

void q4_1(const uint8_t* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(b[4 + j] & 15) + m;
    y[j + 16] = d * static_cast<float>(b[4 + j] >> 4) + m;
  }
}

// The fifth bits stand in 32 bits of their own.
void q5_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  const uint32_t high = u32_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(static_cast<int>((b[6 + j] & 15) | ((high >> j) & 1) << 4) - 16);
    y[j + 16] = d * static_cast<float>(static_cast<int>((b[6 + j] >> 4) | ((high >> (j + 16)) & 1) << 4) - 16);
  }
}

void q5_1(const uint8_t* b, float* y) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = u32_at(b + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b[8 + j] & 15u) | ((high >> j) & 1) << 4) + m;
    y[j + 16] = d * static_cast<float>((b[8 + j] >> 4) | ((high >> (j + 16)) & 1) << 4) + m;
  }
}

void q8_0(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// K-quants: 256 values in 16 or 8 groups, each with its own small scale (and minimum) under one or two f16.
void q2_k(const uint8_t* b, float* y) {
  const uint8_t *scales = b, *q = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    const float dl = d * static_cast<float>(scales[g] & 15), ml = dmin * static_cast<float>(scales[g] >> 4);
    const uint8_t* from = q + g / 8 * 32 + g % 2 * 16;
    const int shift = g % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) y[g * 16 + j] = dl * static_cast<float>((from[j] >> shift) & 3) - ml;
  }
}

void q3_k(const uint8_t* b, float* y) {
  const uint8_t *high = b, *q = b + 32, *packed = b + 96;
  const float d = half_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    // Six-bit scales: low nibbles in bytes 0–7 (groups 8–15 in the upper half), two high bits in bytes 8–11.
    const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
    const int scale = (low | ((packed[8 + g % 4] >> (g / 4 * 2)) & 3) << 4) - 32;
    const float dl = d * static_cast<float>(scale);
    const uint8_t* from = q + g / 8 * 32 + g % 2 * 16;
    const int shift = g % 8 / 2 * 2, bit = g / 2;
    for (int j = 0; j < 16; ++j) {
      const int minus = (high[g % 2 * 16 + j] >> bit) & 1 ? 0 : 4;
      y[g * 16 + j] = dl * static_cast<float>(((from[j] >> shift) & 3) - minus);
    }
  }
}

void q4_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t* q = b + 16;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = k_scale_min(b + 4, g);
    const float dl = d * scale, ml = dmin * minimum;
    const uint8_t* from = q + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int j = 0; j < 32; ++j) y[g * 32 + j] = dl * static_cast<float>((from[j] >> shift) & 15) - ml;
  }
}

void q5_k(const uint8_t* b, float* y) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t *high = b + 16, *q = b + 48;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = k_scale_min(b + 4, g);
    const float dl = d * scale, ml = dmin * minimum;
    const uint8_t* from = q + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int j = 0; j < 32; ++j)
      y[g * 32 + j] = dl * static_cast<float>(((from[j] >> shift) & 15) | ((high[j] >> g) & 1) << 4) - ml;
  }
}

void q6_k(const uint8_t* b, float* y) {
  const uint8_t *low = b, *high = b + 128;
  const float d = half_at(b + 208);
  for (int g = 0; g < 16; ++g) {
    const float dl = d * static_cast<float>(static_cast<int8_t>(b[192 + g]));
    // Groups come in halves of 128 values; in a half, pair p = 0…3 of 32 values.
    const int half = g / 8, p = g % 8 / 2, offset = g % 2 * 16;
    const uint8_t* l = low + half * 64 + p % 2 * 32 + offset;
    const uint8_t* h = high + half * 32 + offset;
    for (int j = 0; j < 16; ++j) {
      const int nibble = p < 2 ? l[j] & 15 : l[j] >> 4;
      y[g * 16 + j] = dl * static_cast<float>((nibble | ((h[j] >> (2 * p)) & 3) << 4) - 32);
    }
  }
}

void tq2_0(const uint8_t* b, float* y) {
  const float d = half_at(b + 64);
  for (int k = 0; k < 256; ++k)
    y[k] = d * static_cast<float>(((b[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2)) & 3) - 1);
}

constexpr std::array<int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void iq4_nl(const uint8_t* b, float* y) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIq4Values[b[2 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kIq4Values[b[2 + j] >> 4]);
  }
}

void iq4_xs(const uint8_t* b, float* y) {
  const float d = half_at(b);
  uint16_t high;
  std::memcpy(&high, b + 2, 2);
  for (int g = 0; g < 8; ++g) {
    const int low = (b[4 + g / 2] >> (g % 2 * 4)) & 15;
    const float dl = d * static_cast<float>((low | ((high >> (2 * g)) & 3) << 4) - 32);
    const uint8_t* q = b + 8 + g * 16;
    for (int j = 0; j < 16; ++j) {
      y[g * 32 + j] = dl * static_cast<float>(kIq4Values[q[j] & 15]);
      y[g * 32 + j + 16] = dl * static_cast<float>(kIq4Values[q[j] >> 4]);
    }
  }
}

// E2M1 values doubled, to be whole; the scale is halved to make up for it (ggml_e8m0_to_fp32_half).
constexpr std::array<int8_t, 16> kFp4Doubled{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void mxfp4(const uint8_t* b, float* y) {
  const float d = std::bit_cast<float>(b[0] < 2 ? 0x00200000u << b[0] : static_cast<uint32_t>(b[0] - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kFp4Doubled[b[1 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kFp4Doubled[b[1 + j] >> 4]);
  }
}

constexpr GgmlBlock kBlocks[] = {{32, 18, q4_0},     {32, 20, q4_1},   {32, 22, q5_0},   {32, 24, q5_1},
                                 {32, 34, q8_0},     {256, 84, q2_k},  {256, 110, q3_k}, {256, 144, q4_k},
                                 {256, 176, q5_k},   {256, 210, q6_k}, {256, 66, tq2_0}, {32, 18, iq4_nl},
                                 {256, 136, iq4_xs}, {32, 17, mxfp4}};

}  // namespace

const GgmlBlock* ggml_block(Coding c) {
  static_assert(std::size(kBlocks) == static_cast<size_t>(Coding::kGgmlMxfp4) - static_cast<size_t>(Coding::kQ4_0) + 1);
  return c < Coding::kQ4_0 ? nullptr : &kBlocks[static_cast<size_t>(c) - static_cast<size_t>(Coding::kQ4_0)];
}

}  // namespace mxt
