// Number types of tensors and their conversions. All conversions round to nearest, ties to even; fp8 saturates as the
// OCP specification says.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace mxt {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8, kI8, kF8E4M3, kF64, kBool };

size_t size_of(DType t);            // bytes of one element
std::string_view name_of(DType t);  // safetensors' names: F32 F16 BF16 I32 I64 U8 I8 F8_E4M3 F64 BOOL
bool dtype_from_name(std::string_view name, DType* out);  // false where the name is unknown

inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }
inline uint16_t float_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float f16_to_float(uint16_t h);
uint16_t float_to_f16(float f);
float f8e4m3_to_float(uint8_t b);  // E4M3FN: no infinities, 0x7f and 0xff are NaN, largest 448
uint8_t float_to_f8e4m3(float f);  // saturates to ±448
// The power of two that E4M3 values of a row are multiples of: the least s with largest ≤ 448·s (1 where all is zero,
// at least 2^-126). A power of two keeps held values exact in bf16 and fp32, so that a product of them is the same
// wherever it is computed.
inline float f8e4m3_row_scale(float largest) {
  if (!(largest > 0)) return 1.0f;
  const uint32_t u = std::bit_cast<uint32_t>(largest) + 0x1fffffu;  // above 1.75·2^e the exponent grows by one
  const int exponent = static_cast<int>(u >> 23) - 8;               // biased
  return std::bit_cast<float>(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

// Storage of bf16 with value semantics, for plain code; kernels work on uint16_t.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float f) : bits(float_to_bf16(f)) {}
  explicit operator float() const { return bf16_to_float(bits); }
};

// Whole arrays, any of F32 F16 BF16 F8E4M3 (F64 as source): used by loaders and tests.
void convert(const void* from, DType from_type, void* to, DType to_type, size_t count);

}  // namespace mxt
