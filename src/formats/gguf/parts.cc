// Blocks taken apart: what a kernel needs that decodes in registers. Layouts: dequantize.cc, beside which the test
// holds this.
#include <cstring>

#include "base/error.h"
#include "base/types.h"
#include "formats/gguf.h"
#include "formats/gguf/k_quants.h"

namespace mxt::formats {
namespace {

// Nibbles in the order of Q4_0 to Q5_1, with a fifth bit where `high` is given.
void nibbles(const uint8_t* b, const uint8_t* high, int minus, int8_t* q) {
  uint32_t h = 0;
  if (high) std::memcpy(&h, high, 4);
  for (int j = 0; j < 32; ++j)
    q[j] = static_cast<int8_t>(static_cast<int>((j < 16 ? b[j] & 15u : b[j - 16] >> 4u) | (h >> j & 1) << 4) - minus);
}

// Group g of eight of a Q4_K or Q5_K block: scales at b + 4, nibbles at `q`, fifth bits at `high`.
GgmlPart k_group(const uint8_t* b, const uint8_t* q, const uint8_t* high, int g) {
  GgmlPart p;
  const auto [scale, minimum] = k_scale_min(b + 4, g);
  p.scale[0] = p.scale[1] = half_at(b) * scale;
  p.least = -(half_at(b + 2) * minimum);
  for (int j = 0; j < 32; ++j)
    p.q[j] = static_cast<int8_t>((q[g / 2 * 32 + j] >> (g % 2 * 4) & 15) | (high ? (high[j] >> g & 1) << 4 : 0));
  return p;
}

GgmlPart q6_group(const uint8_t* b, int g) {
  GgmlPart p;
  for (int s = 0; s < 2; ++s)
    p.scale[s] = half_at(b + 208) * static_cast<float>(static_cast<int8_t>(b[192 + 2 * g + s]));
  const uint8_t *low = b + g / 4 * 64 + g % 2 * 32, *high = b + 128 + g / 4 * 32;
  for (int j = 0; j < 32; ++j)
    p.q[j] = static_cast<int8_t>(((g % 4 < 2 ? low[j] & 15 : low[j] >> 4) | (high[j] >> (2 * (g % 4)) & 3) << 4) - 32);
  return p;
}

}  // namespace

bool ggml_has_parts(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_0:
    case GgmlType::kQ5_1:
    case GgmlType::kQ8_0:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
    case GgmlType::kQ6_K:
      return true;
    default:
      return false;
  }
}

void ggml_parts(GgmlType type, const void* in, int64_t columns, GgmlPart* out) {
  const GgmlTypeInfo* info = ggml_type_info(type);
  const auto* b = static_cast<const uint8_t*>(in);
  const bool k_quant = info->block == 256;
  for (int64_t n = 0; n < columns / 32; ++n, ++out) {
    const int g = static_cast<int>(n % 8);
    GgmlPart& p = *out;
    p = {};
    if (!k_quant) p.scale[0] = p.scale[1] = half_at(b);
    switch (type) {
      case GgmlType::kQ4_0:
        nibbles(b + 2, nullptr, 8, p.q);
        break;
      case GgmlType::kQ4_1:
        p.least = half_at(b + 2), nibbles(b + 4, nullptr, 0, p.q);
        break;
      case GgmlType::kQ5_0:
        nibbles(b + 6, b + 2, 16, p.q);
        break;
      case GgmlType::kQ5_1:
        p.least = half_at(b + 2), nibbles(b + 8, b + 4, 0, p.q);
        break;
      case GgmlType::kQ8_0:
        std::memcpy(p.q, b + 2, 32);
        break;
      case GgmlType::kQ4_K:
        p = k_group(b, b + 16, nullptr, g);
        break;
      case GgmlType::kQ5_K:
        p = k_group(b, b + 48, b + 16, g);
        break;
      case GgmlType::kQ6_K:
        p = q6_group(b, g);
        break;
      default:
        MXT_ASSERT(!"no parts");
    }
    if (!k_quant || g == 7) b += info->bytes;
  }
}

}  // namespace mxt::formats
