#include "kernels/small_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/threads.h"

namespace mxt::kernels {
namespace {

// The types by their definition: the exponent of the value, then a multiple of the step at that exponent.
double to_grid(double x, int mantissa_bits, int least_exponent, double largest) {
  if (x == 0) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), least_exponent) - mantissa_bits);
  return std::clamp(std::nearbyint(x / step) * step, -largest, largest);
}

std::vector<float> defined(SmallType type, int64_t group, const std::vector<float>& x, int64_t cols) {
  std::vector<float> y(x.size());
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t row = 0; row < n; row += cols)
    for (int64_t first = row; first < row + cols; first += group > 0 ? group : cols) {
      const int64_t last = std::min(first + (group > 0 ? group : cols), row + cols);
      float most = 0;
      for (int64_t i = first; i < last; ++i) most = std::max(most, std::abs(x[static_cast<size_t>(i)]));
      double scale = 1;
      if (most > 0)
        scale = type == SmallType::kFp8 ? static_cast<double>(most / 448.0f)
                                        : std::ldexp(1.0, std::ilogb(to_grid(most, 1, -200, 1e300)) - 2);
      for (int64_t i = first; i < last; ++i) {
        const double q = static_cast<float>(static_cast<double>(x[static_cast<size_t>(i)]) / scale);
        y[static_cast<size_t>(i)] =
            static_cast<float>((type == SmallType::kFp8 ? to_grid(q, 3, -6, 448) : to_grid(q, 1, 0, 6)) * scale);
      }
    }
  return y;
}

std::vector<float> noise(int64_t n, float scale) {
  std::vector<float> x(static_cast<size_t>(n));
  uint32_t s = 7;
  for (float& v : x) {
    s = s * 1664525u + 1013904223u;
    const float u = static_cast<float>(s >> 8) / 8388608.0f - 1.0f;
    v = u * u * u * scale;  // values of many sizes
  }
  return x;
}

TEST(RoundRows, IsWhatTheFormatsDefine) {
  for (const auto& [type, group] :
       {std::pair{SmallType::kFp8, int64_t{0}}, {SmallType::kFp8, int64_t{128}}, {SmallType::kMxfp4, int64_t{32}}})
    for (int64_t cols : {1, 31, 576, 1536})
      for (float scale : {1e-30f, 0.01f, 300.0f}) {
        const auto x = noise(5 * cols, scale);
        std::vector<float> y(x.size());
        round_rows(type, group, {x.data(), 5, cols, cols, DType::kF32}, {y.data(), 5, cols, cols, DType::kF32});
        EXPECT_EQ(y, defined(type, group, x, cols)) << cols << " " << scale;
      }
}

TEST(RoundRows, OfBf16IsTheRoundingOfItsValue) {
  const auto x = noise(3 * 576, 2);
  std::vector<uint16_t> b(x.size()), in_place;
  std::vector<float> values(x.size());
  for (size_t i = 0; i < x.size(); ++i) values[i] = bf16_to_float(b[i] = float_to_bf16(x[i]));
  in_place = b;
  round_rows(SmallType::kFp8, 0, {in_place.data(), 3, 576, 576, DType::kBF16},
             {in_place.data(), 3, 576, 576, DType::kBF16});
  const auto want = defined(SmallType::kFp8, 0, values, 576);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(bf16_to_float(in_place[i]), bf16_to_float(float_to_bf16(want[i])));  // zeros of either sign are alike
}

TEST(RoundRows, TiesGoToEvenAndTheLargestStays) {
  std::vector<float> x{448, 17, 19, 1.0625f, 1.1875f, -0.0009765625f, 0}, y(x.size());
  round_rows(SmallType::kFp8, 0, {x.data(), 1, 7, 7, DType::kF32}, {y.data(), 1, 7, 7, DType::kF32});
  EXPECT_EQ(y, (std::vector<float>{448, 16, 20, 1.0f, 1.25f, -0.0f, 0}));
}

TEST(RoundRows, ZerosStayZero) {
  std::vector<float> x(64, 0.0f), y(64, 1.0f);
  for (SmallType t : {SmallType::kFp8, SmallType::kMxfp4}) {
    round_rows(t, 32, {x.data(), 2, 32, 32, DType::kF32}, {y.data(), 2, 32, 32, DType::kF32});
    EXPECT_EQ(y, x);
  }
}

}  // namespace
}  // namespace mxt::kernels
