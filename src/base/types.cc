#include "base/types.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"

namespace mxt {
namespace {

struct Info {
  DType type;
  std::string_view name;
  size_t size;
};
constexpr std::array<Info, 10> kInfo{{{DType::kF32, "F32", 4},
                                      {DType::kF16, "F16", 2},
                                      {DType::kBF16, "BF16", 2},
                                      {DType::kI32, "I32", 4},
                                      {DType::kI64, "I64", 8},
                                      {DType::kU8, "U8", 1},
                                      {DType::kI8, "I8", 1},
                                      {DType::kF8E4M3, "F8_E4M3", 1},
                                      {DType::kF64, "F64", 8},
                                      {DType::kBool, "BOOL", 1}}};

float load(const void* p, DType t, size_t i) {
  switch (t) {
    case DType::kF32:
      return static_cast<const float*>(p)[i];
    case DType::kF16:
      return f16_to_float(static_cast<const uint16_t*>(p)[i]);
    case DType::kBF16:
      return bf16_to_float(static_cast<const uint16_t*>(p)[i]);
    case DType::kF8E4M3:
      return f8e4m3_to_float(static_cast<const uint8_t*>(p)[i]);
    case DType::kF64:
      return static_cast<float>(static_cast<const double*>(p)[i]);
    default:
      MXT_ASSERT(!"convert: not a floating type");
  }
}

void store(void* p, DType t, size_t i, float v) {
  switch (t) {
    case DType::kF32:
      static_cast<float*>(p)[i] = v;
      return;
    case DType::kF16:
      static_cast<uint16_t*>(p)[i] = float_to_f16(v);
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(p)[i] = float_to_bf16(v);
      return;
    case DType::kF8E4M3:
      static_cast<uint8_t*>(p)[i] = float_to_f8e4m3(v);
      return;
    default:
      MXT_ASSERT(!"convert: not a floating type");
  }
}

}  // namespace

size_t size_of(DType t) { return kInfo[static_cast<size_t>(t)].size; }
std::string_view name_of(DType t) { return kInfo[static_cast<size_t>(t)].name; }
bool dtype_from_name(std::string_view name, DType* out) {
  for (const auto& i : kInfo)
    if (i.name == name) {
      *out = i.type;
      return true;
    }
  return false;
}

float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 0x1fu, man = h & 0x3ffu;
  if (exp == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(man), -24)));
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
  return std::bit_cast<float>(sign | ((exp + 112) << 23) | (man << 13));
}

uint16_t float_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;  // rounds past 65504
  if (a < 0x38800000u) {                        // subnormal: multiples of 2^-24
    const float scaled = std::ldexp(std::bit_cast<float>(a), 24);
    return sign | static_cast<uint16_t>(std::nearbyint(scaled));
  }
  const uint32_t r = a + 0xfffu + ((a >> 13) & 1u);
  return sign | static_cast<uint16_t>((r - 0x38000000u) >> 13);
}

float f8e4m3_to_float(uint8_t b) {
  const float sign = b & 0x80 ? -1.0f : 1.0f;
  const int exp = (b >> 3) & 15, man = b & 7;
  if (exp == 15 && man == 7) return std::bit_cast<float>(0x7fc00000u);
  if (exp == 0) return sign * std::ldexp(static_cast<float>(man), -9);
  return sign * std::ldexp(1.0f + static_cast<float>(man) / 8.0f, exp - 7);
}

uint8_t float_to_f8e4m3(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7f;
  const float v = std::bit_cast<float>(a);
  if (v >= 448.0f) return sign | 0x7e;
  if (v < 0.015625f) return sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(v, 9)));  // below 2^-6
  const uint32_t r = a + 0x7ffffu + ((a >> 20) & 1u);
  return sign | static_cast<uint8_t>((r >> 20) - (120u << 3));
}

void convert(const void* from, DType from_type, void* to, DType to_type, size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(from_type));
    return;
  }
  parallel_for(0, static_cast<int64_t>(count), 1 << 16, [&](int64_t b, int64_t e) {
    if (from_type == DType::kBF16 && to_type == DType::kF32) {
      for (int64_t i = b; i < e; ++i) static_cast<float*>(to)[i] = bf16_to_float(static_cast<const uint16_t*>(from)[i]);
    } else if (from_type == DType::kF32 && to_type == DType::kBF16) {
      for (int64_t i = b; i < e; ++i) static_cast<uint16_t*>(to)[i] = float_to_bf16(static_cast<const float*>(from)[i]);
    } else {
      for (int64_t i = b; i < e; ++i)
        store(to, to_type, static_cast<size_t>(i), load(from, from_type, static_cast<size_t>(i)));
    }
  });
}

}  // namespace mxt
