// Rounding to FP8 and MXFP4 by arithmetic on the bits, in loops that the compiler turns into vector code.
#include "kernels/small_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/threads.h"

namespace mxt::kernels {
namespace {

// Nearest value with `kBits` mantissa bits (ties to even), steps of `kStep` below 2^kLeast, cut at ±largest.
template <int kBits, int kLeast>
float to_grid(float x, float largest) {
  constexpr int kDrop = 23 - kBits;
  const auto u = std::bit_cast<uint32_t>(x);
  const float normal =
      std::bit_cast<float>((u + ((1u << (kDrop - 1)) - 1) + ((u >> kDrop) & 1)) & ~((1u << kDrop) - 1));
  // Adding 1.5·2^23 steps leaves whole steps.
  constexpr float kMagic =
      1.5f * static_cast<float>(1 << 23) * (kLeast < kBits ? 1.0f / static_cast<float>(1 << (kBits - kLeast)) : 1.0f);
  const float small = (x + kMagic) - kMagic;
  constexpr float kLeastNormal = 1.0f / static_cast<float>(1 << -kLeast);
  const float y = std::abs(x) < kLeastNormal ? small : normal;
  return std::min(std::max(y, -largest), largest);
}

float largest(const float* x, int64_t n) {
  float m = 0;
  for (int64_t i = 0; i < n; ++i) m = std::max(m, std::abs(x[i]));
  return m;
}

void round_group(SmallType type, float* x, int64_t n) {
  const float most = largest(x, n);
  if (!(most > 0)) return;
  if (type == SmallType::kFp8) {
    const float scale = most / 448.0f;
    if (scale == 0) return;
    for (int64_t i = 0; i < n; ++i) x[i] = to_grid<3, -6>(x[i] / scale, 448.0f) * scale;
  } else {
    // The exponent after rounding the mantissa to one bit: 1.75 and above belong to the next.
    const auto u = std::bit_cast<uint32_t>(most);
    const float top = std::bit_cast<float>((u + 0x1fffffu + ((u >> 22) & 1)) & ~0x3fffffu);
    const int exponent = std::ilogb(top) - 2;
    const float scale = std::ldexp(1.0f, exponent);
    for (int64_t i = 0; i < n; ++i) x[i] = to_grid<1, 0>(x[i] / scale, 6.0f) * scale;
  }
}

}  // namespace

void round_rows(SmallType type, int64_t group, const ConstMat& x, const Mat& y) {
  MXT_ASSERT(x.rows == y.rows && x.cols == y.cols && x.type == y.type && group >= 0);
  const int64_t cols = x.cols, step = group > 0 ? group : cols;
  parallel_for(0, x.rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, cols)), [&](int64_t b, int64_t e) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t t = b; t < e; ++t) {
      const char* from = static_cast<const char*>(x.p) + static_cast<size_t>(t * x.ld) * size_of(x.type);
      char* to = static_cast<char*>(y.p) + static_cast<size_t>(t * y.ld) * size_of(y.type);
      convert(from, x.type, row.data(), DType::kF32, row.size());
      for (int64_t i = 0; i < cols; i += step) round_group(type, row.data() + i, std::min(step, cols - i));
      convert(row.data(), DType::kF32, to, y.type, row.size());
    }
  });
}

void quantize_rows(const Quantize& c) {
  const int64_t cols = c.x.cols;
  parallel_for(0, c.x.rows, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, cols)), [&](int64_t b, int64_t e) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t t = b; t < e; ++t) {
      convert(static_cast<const char*>(c.x.p) + static_cast<size_t>(t * c.x.ld) * size_of(c.x.type), c.x.type,
              row.data(), DType::kF32, row.size());
      if (c.channel)
        for (int64_t i = 0; i < cols; ++i) row[static_cast<size_t>(i)] *= c.channel[i];
      const float scale = f8e4m3_row_scale(largest(row.data(), cols)), inverse = 1.0f / scale;
      for (float& x : row) x = to_grid<3, -6>(x * inverse, 448.0f);
      if (c.scale) c.scale[t] = scale;
      char* to = static_cast<char*>(c.q.p) + static_cast<size_t>(t * c.q.ld) * size_of(c.q.type);
      if (c.q.type == DType::kF8E4M3) {
        for (int64_t i = 0; i < cols; ++i)
          reinterpret_cast<uint8_t*>(to)[i] = float_to_f8e4m3(row[static_cast<size_t>(i)]);
        continue;
      }
      for (float& x : row) x *= scale;
      if (c.channel)
        for (int64_t i = 0; i < cols; ++i) row[static_cast<size_t>(i)] /= c.channel[i];
      convert(row.data(), DType::kF32, to, c.q.type, row.size());
    }
  });
}

}  // namespace mxt::kernels
