#include "quantize/encode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::quantize {
namespace {

constexpr float kE2M1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
// Above bound i the code i+1 is nearer; on it the even code wins.
constexpr float kBounds[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

int64_t rows_per_piece(int64_t cols) { return std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, cols)); }

float rounded(float x, DType stored) {
  if (stored == DType::kBF16) return bf16_to_float(float_to_bf16(x));
  if (stored == DType::kF16) return f16_to_float(float_to_f16(x));
  return x;
}

double squared_error(const float* w, float scale) {
  double sum = 0;
  for (int64_t i = 0; i < kMxGroup; ++i) {
    const float x = w[i] / scale;
    const float q = std::copysign(kE2M1[float_to_e2m1(x) & 7], x);
    const double e = static_cast<double>(w[i]) - static_cast<double>(q) * static_cast<double>(scale);
    sum += e * e;
  }
  return sum;
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

uint8_t float_to_e2m1(float x) {
  const float a = std::abs(x);
  uint8_t code = 0;
  // The bound itself goes to the even code: up where the lower code is odd.
  while (code < 7 && (a > kBounds[code] || (a == kBounds[code] && code % 2 == 1))) ++code;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

void mxfp4(const float* w, int64_t rows, int64_t cols, uint8_t* packed, uint8_t* exponents) {
  MXT_ASSERT(cols % kMxGroup == 0);
  const int64_t groups = cols / kMxGroup;
  parallel_for(0, rows, rows_per_piece(cols), [&](int64_t b, int64_t e) {
    for (int64_t g = b * groups; g < e * groups; ++g) {
      const float* x = w + g * kMxGroup;
      const float m = largest(x, kMxGroup);
      int exponent = 0;
      if (m > 0) {
        // 4 ≤ m / 2^low < 8: with `low` values above 6 are cut, with one more nothing is.
        const int low = std::ilogb(m) - 2;
        exponent = std::clamp(low, -127, 127);
        const int high = std::clamp(low + 1, -127, 127);
        if (m > kE2M1[7] * std::ldexp(1.0f, exponent) &&
            squared_error(x, std::ldexp(1.0f, high)) < squared_error(x, std::ldexp(1.0f, exponent)))
          exponent = high;
      }
      exponents[g] = static_cast<uint8_t>(exponent + 127);
      const float s = std::ldexp(1.0f, exponent);
      for (int64_t i = 0; i < kMxGroup; i += 2)
        packed[(g * kMxGroup + i) / 2] =
            static_cast<uint8_t>(float_to_e2m1(x[i] / s) | float_to_e2m1(x[i + 1] / s) << 4);
    }
  });
}

}  // namespace mxt::quantize
