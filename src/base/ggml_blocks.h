// Blocks of ggml's types (GGUF): so many values of a row side by side, in so many bytes. Layouts: ggml-common.h.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/coding.h"
#include "base/types.h"

namespace mxt {

struct GgmlBlock {
  int64_t values, bytes;
  void (*decode)(const uint8_t* block, float* values);
};
// Of a coding that is one of these; null of the others.
const GgmlBlock* ggml_block(Coding c);

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

}  // namespace mxt
