// Block encoders. Each gives the bytes of ggml's reference encoder (quantize_row_*_ref, no importance matrix): the
// order of the floating-point operations and the way each rounds are part of the format's practice.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "formats/gguf.h"
#include "formats/gguf/k_quants.h"

namespace mxt::formats {
namespace {

void put_half(uint8_t* p, float f) {
  const uint16_t h = float_to_f16(f);
  std::memcpy(p, &h, 2);
}

// The value of largest magnitude, with its sign; the first of equals.
template <int N>
float extreme(const float* x) {
  float best = 0, magnitude = 0;
  for (int j = 0; j < N; ++j)
    if (std::fabs(x[j]) > magnitude) {
      magnitude = std::fabs(x[j]);
      best = x[j];
    }
  return best;
}

uint8_t capped(float v, int top) {
  return static_cast<uint8_t>(std::min(top, static_cast<int>(static_cast<int8_t>(v))));
}

void q4_0(const float* x, uint8_t* b) {
  const float d = extreme<32>(x) / -8;
  const float id = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  for (int j = 0; j < 16; ++j)
    b[2 + j] = static_cast<uint8_t>(capped(x[j] * id + 8.5f, 15) | capped(x[j + 16] * id + 8.5f, 15) << 4);
}

void q4_1(const float* x, uint8_t* b) {
  const auto [lo, hi] = std::minmax_element(x, x + 32);
  const float m = *lo, d = (*hi - m) / 15;
  const float id = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  put_half(b + 2, m);
  for (int j = 0; j < 16; ++j)
    b[4 + j] = static_cast<uint8_t>(capped((x[j] - m) * id + 0.5f, 15) | capped((x[j + 16] - m) * id + 0.5f, 15) << 4);
}

void pack_five_bits(const std::array<uint8_t, 32>& q, uint8_t* high, uint8_t* low) {
  uint32_t bits = 0;
  for (int j = 0; j < 32; ++j) bits |= static_cast<uint32_t>(q[static_cast<size_t>(j)] >> 4 & 1) << j;
  for (size_t j = 0; j < 16; ++j) low[j] = static_cast<uint8_t>((q[j] & 15) | (q[j + 16] & 15) << 4);
  std::memcpy(high, &bits, 4);
}

void q5_0(const float* x, uint8_t* b) {
  const float d = extreme<32>(x) / -16;
  const float id = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  std::array<uint8_t, 32> q;
  for (size_t j = 0; j < 32; ++j) q[j] = capped(x[j] * id + 16.5f, 31);
  pack_five_bits(q, b + 2, b + 6);
}

void q5_1(const float* x, uint8_t* b) {
  const auto [lo, hi] = std::minmax_element(x, x + 32);
  const float m = *lo, d = (*hi - m) / 31;
  const float id = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  put_half(b + 2, m);
  std::array<uint8_t, 32> q;
  for (size_t j = 0; j < 32; ++j) q[j] = static_cast<uint8_t>((x[j] - m) * id + 0.5f);
  pack_five_bits(q, b + 4, b + 8);
}

void q8_0(const float* x, uint8_t* b) {
  const float d = std::fabs(extreme<32>(x)) / 127;
  const float id = d != 0 ? 1.0f / d : 0.0f;
  put_half(b, d);
  for (int j = 0; j < 32; ++j) b[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[j] * id)));
}

// Scale 2^(floor(log2 max) − 2), so that the largest value lands on 4…7.99 of E2M1's 6; then the nearest value, the
// first of equals.
void mxfp4(const float* x, uint8_t* b) {
  static constexpr std::array<float, 16> kDoubled{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float top = std::fabs(extreme<32>(x));
  const int e = top > 0 ? std::clamp(static_cast<int>(std::floor(std::log2(top))) - 2 + 127, 0, 254) : 0;
  b[0] = static_cast<uint8_t>(e);
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
  const auto nearest = [&](float v) {
    int best = 0;
    for (int i = 1; i < 16; ++i)
      if (std::fabs(kDoubled[static_cast<size_t>(i)] * d - v) < std::fabs(kDoubled[static_cast<size_t>(best)] * d - v))
        best = i;
    return best;
  };
  for (int j = 0; j < 16; ++j) b[1 + j] = static_cast<uint8_t>(nearest(x[j]) | nearest(x[j + 16]) << 4);
}

using Encode = void (*)(const float*, uint8_t*);

Encode encoder(GgmlType type) {
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
    case T::kQ4_K:
      return encode_q4_k;
    case T::kQ5_K:
      return encode_q5_k;
    case T::kQ6_K:
      return encode_q6_k;
    case T::kMXFP4:
      return mxfp4;
    default:
      return nullptr;
  }
}

}  // namespace

void ggml_quantize(GgmlType type, const float* in, int64_t rows, int64_t columns, void* out) {
  const int64_t count = rows * columns;
  if (type == GgmlType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * 4);
    return;
  }
  if (type == GgmlType::kF16) return convert(in, DType::kF32, out, DType::kF16, static_cast<size_t>(count));
  if (type == GgmlType::kBF16) return convert(in, DType::kF32, out, DType::kBF16, static_cast<size_t>(count));
  const GgmlTypeInfo& info = *ggml_type_info(type);
  const Encode encode = encoder(type);
  MXT_ASSERT(encode && columns % info.block == 0);
  parallel_for(0, count / info.block, (1 << 14) / info.block, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      encode(in + static_cast<size_t>(i) * info.block,
             static_cast<uint8_t*>(out) + static_cast<size_t>(i) * info.bytes);
  });
}

}  // namespace mxt::formats
