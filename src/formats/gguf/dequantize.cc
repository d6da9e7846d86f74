// Block decoders. The order of the floating-point operations is that of ggml's reference and of gguf-py, so results are
// equal bit by bit (the build forbids contraction into FMA).
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "formats/gguf.h"
#include "formats/gguf/k_quants.h"

namespace mxt::formats {
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

using Decode = void (*)(const uint8_t*, float*);

Decode decoder(GgmlType type) {
  using T = GgmlType;
  switch (type) {
    case T::kQ4_0:
      return q4_0;
    case T::kQ4_1:
      return q4_1;
    case T::kQ5_0:
      return q5_0;
    case T::kQ5_1:
      return q5_1;
    case T::kQ8_0:
      return q8_0;
    case T::kQ2_K:
      return q2_k;
    case T::kQ3_K:
      return q3_k;
    case T::kQ4_K:
      return q4_k;
    case T::kQ5_K:
      return q5_k;
    case T::kQ6_K:
      return q6_k;
    case T::kTQ2_0:
      return tq2_0;
    case T::kIQ4_NL:
      return iq4_nl;
    case T::kIQ4_XS:
      return iq4_xs;
    case T::kMXFP4:
      return mxfp4;
    default:
      return nullptr;
  }
}

template <typename Raw, typename F>
void plain(const void* in, int64_t count, float* out, F to_float) {
  parallel_for(0, count, 1 << 16, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      Raw v;
      std::memcpy(&v, static_cast<const uint8_t*>(in) + static_cast<size_t>(i) * sizeof(Raw), sizeof v);
      out[i] = to_float(v);
    }
  });
}

}  // namespace

void ggml_dequantize(GgmlType type, const void* in, int64_t rows, int64_t columns, float* out) {
  const int64_t count = rows * columns;
  switch (type) {
    case GgmlType::kF32:
      return plain<float>(in, count, out, [](float v) { return v; });
    case GgmlType::kF64:
      return plain<double>(in, count, out, [](double v) { return static_cast<float>(v); });
    case GgmlType::kF16:
      return plain<uint16_t>(in, count, out, [](uint16_t v) { return f16_to_float(v); });
    case GgmlType::kBF16:
      return plain<uint16_t>(in, count, out, [](uint16_t v) { return bf16_to_float(v); });
    default:
      break;
  }
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const Decode decode = decoder(type);
  MXT_ASSERT(decode && columns % info.block == 0);
  const int64_t blocks = count / info.block;
  parallel_for(0, blocks, (1 << 16) / info.block, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      decode(static_cast<const uint8_t*>(in) + static_cast<size_t>(i) * info.bytes,
             out + static_cast<size_t>(i) * info.block);
  });
}

}  // namespace mxt::formats
