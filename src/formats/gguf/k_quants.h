// What blocks are read by, the K-quants' scales, and their encoders: 256 values to one block, byte by byte as ggml's
// reference.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/types.h"

namespace mxt::formats {

inline float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_float(h);
}

// Scale and minimum of group g in the 12 bytes that Q4_K and Q5_K share: six bits each.
inline std::array<float, 2> k_scale_min(const uint8_t* s, int g) {
  if (g < 4) return {static_cast<float>(s[g] & 63), static_cast<float>(s[g + 4] & 63)};
  return {static_cast<float>((s[g + 4] & 15) | (s[g - 4] >> 6) << 4),
          static_cast<float>((s[g + 4] >> 4) | (s[g] >> 6) << 4)};
}

void encode_q4_k(const float* x, uint8_t* block);
void encode_q5_k(const float* x, uint8_t* block);
void encode_q6_k(const float* x, uint8_t* block);

}  // namespace mxt::formats
