#include "quantize/encode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::quantize {
namespace {

int64_t rows_per_piece(int64_t cols) { return std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, cols)); }

float rounded(float x, DType stored) {
  if (stored == DType::kBF16) return bf16_to_float(float_to_bf16(x));
  if (stored == DType::kF16) return f16_to_float(float_to_f16(x));
  return x;
}

}  // namespace

float largest(const float* w, int64_t count) {
  float m = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float a = std::abs(w[i]);
    if (!(a <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::infinity();
    m = std::max(m, a);
  }
  return m;
}

float fp8_scale(float largest, DType stored) {
  const float s = rounded(largest / kFp8Max, stored);
  return s > 0 ? s : (largest > 0 ? std::numeric_limits<float>::min() : 1.0f);
}

void fp8_with_scale(const float* w, int64_t count, float scale, uint8_t* q) {
  parallel_for(0, count, 1 << 15, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) q[i] = float_to_f8e4m3(w[i] / scale);
  });
}

void fp8_by_row(const float* w, int64_t rows, int64_t cols, DType stored, uint8_t* q, float* scales) {
  parallel_for(0, rows, rows_per_piece(cols), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const float* x = w + r * cols;
      const float s = scales[r] = fp8_scale(largest(x, cols), stored);
      for (int64_t i = 0; i < cols; ++i) q[r * cols + i] = float_to_f8e4m3(x[i] / s);
    }
  });
}

void fp8_by_block(const float* w, int64_t rows, int64_t cols, uint8_t* q, float* scales) {
  const int64_t down = (rows + kFp8Block - 1) / kFp8Block, across = (cols + kFp8Block - 1) / kFp8Block;
  parallel_for(0, down * across, 1, [&](int64_t b, int64_t e) {
    for (int64_t k = b; k < e; ++k) {
      const int64_t r0 = k / across * kFp8Block, r1 = std::min(rows, r0 + kFp8Block);
      const int64_t c0 = k % across * kFp8Block, c1 = std::min(cols, c0 + kFp8Block);
      float m = 0;
      for (int64_t r = r0; r < r1; ++r) m = std::max(m, largest(w + r * cols + c0, c1 - c0));
      const float s = scales[k] = fp8_scale(m, DType::kF32);
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) q[r * cols + c] = float_to_f8e4m3(w[r * cols + c] / s);
    }
  });
}

}  // namespace mxt::quantize
