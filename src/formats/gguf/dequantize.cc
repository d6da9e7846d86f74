#include <cstring>

#include "base/error.h"
#include "base/ggml_blocks.h"
#include "base/threads.h"
#include "formats/coded.h"
#include "formats/gguf.h"

namespace mxt::formats {
namespace {

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

Coding ggml_coding(GgmlType type) {
  using T = GgmlType;
  switch (type) {
    case T::kQ4_0:
      return Coding::kQ4_0;
    case T::kQ4_1:
      return Coding::kQ4_1;
    case T::kQ5_0:
      return Coding::kQ5_0;
    case T::kQ5_1:
      return Coding::kQ5_1;
    case T::kQ8_0:
      return Coding::kQ8_0;
    case T::kQ2_K:
      return Coding::kQ2_K;
    case T::kQ3_K:
      return Coding::kQ3_K;
    case T::kQ4_K:
      return Coding::kQ4_K;
    case T::kQ5_K:
      return Coding::kQ5_K;
    case T::kQ6_K:
      return Coding::kQ6_K;
    case T::kTQ2_0:
      return Coding::kTQ2_0;
    case T::kIQ4_NL:
      return Coding::kIQ4_NL;
    case T::kIQ4_XS:
      return Coding::kIQ4_XS;
    case T::kMXFP4:
      return Coding::kGgmlMxfp4;
    default:
      return Coding::kNone;
  }
}

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
  const GgmlBlock* block = ggml_block(ggml_coding(type));
  MXT_ASSERT(block && columns % block->values == 0);
  parallel_for(0, count / block->values, (1 << 16) / block->values, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      block->decode(static_cast<const uint8_t*>(in) + i * block->bytes, out + i * block->values);
  });
}

}  // namespace mxt::formats
