#include "quantize/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/coding.h"
#include "base/threads.h"

namespace mxt::quantize {
namespace {

constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

std::vector<float> noise(int64_t n, float scale) {
  std::vector<float> w(static_cast<size_t>(n));
  uint32_t s = 1;
  for (float& x : w) {
    s = s * 1664525u + 1013904223u;
    x = (static_cast<float>(s >> 8) / 8388608.0f - 1.0f) * scale;
  }
  return w;
}

TEST(E2M1, NearestValueTiesToEven) {
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(float_to_e2m1(kValues[code]), code);
    EXPECT_EQ(float_to_e2m1(-kValues[code]), code | 8);
  }
  EXPECT_EQ(float_to_e2m1(0.25f), 0);  // between codes 0 and 1
  EXPECT_EQ(float_to_e2m1(0.75f), 2);
  EXPECT_EQ(float_to_e2m1(1.25f), 2);
  EXPECT_EQ(float_to_e2m1(1.75f), 4);
  EXPECT_EQ(float_to_e2m1(2.5f), 4);
  EXPECT_EQ(float_to_e2m1(3.5f), 6);
  EXPECT_EQ(float_to_e2m1(5.0f), 6);
  EXPECT_EQ(float_to_e2m1(5.01f), 7);
  EXPECT_EQ(float_to_e2m1(100.0f), 7);
  for (float x = -7; x < 7; x += 0.01f) {
    float best = 1e9f;
    for (float v : kValues) best = std::min(best, std::abs(std::copysign(v, x) - x));
    const uint8_t c = float_to_e2m1(x);
    EXPECT_NEAR(std::abs(std::copysign(kValues[c & 7], c & 8 ? -1.0f : 1.0f) - x), best, 1e-6f) << x;
  }
}

TEST(Fp8, ARowsLargestValueFillsTheRange) {
  const auto w = noise(3 * 100, 0.3f);
  std::vector<uint8_t> q(w.size());
  std::vector<float> s(3);
  fp8_by_row(w.data(), 3, 100, DType::kF32, q.data(), s.data());
  for (int r = 0; r < 3; ++r) {
    float most = 0;
    for (int i = 0; i < 100; ++i) {
      const float x = w[static_cast<size_t>(r * 100 + i)],
                  y = f8e4m3_to_float(q[static_cast<size_t>(r * 100 + i)]) * s[static_cast<size_t>(r)];
      most = std::max(most, std::abs(f8e4m3_to_float(q[static_cast<size_t>(r * 100 + i)])));
      EXPECT_LE(std::abs(y - x), std::max(std::abs(x) / 16, s[static_cast<size_t>(r)] / 1024) * 1.0001f);
    }
    EXPECT_EQ(most, 448.0f);
  }
}

TEST(Fp8, ScalesAreWhatAReaderMultipliesWith) {
  for (DType t : {DType::kBF16, DType::kF16}) {
    const float s = fp8_scale(0.37f, t);
    EXPECT_EQ(s, t == DType::kBF16 ? bf16_to_float(float_to_bf16(s)) : f16_to_float(float_to_f16(s)));
  }
  EXPECT_EQ(fp8_scale(0, DType::kF32), 1.0f);
  EXPECT_GT(fp8_scale(1e-30f, DType::kF16), 0.0f);
}

TEST(Fp8, RaggedBlocksHaveTheirOwnScale) {
  std::vector<float> w(130 * 129, 1.0f);
  w[129 * 129 + 128] = 7.0f;  // alone with 1s in the corner block of 2×1
  std::vector<uint8_t> q(w.size());
  std::vector<float> s(4);
  fp8_by_block(w.data(), 130, 129, q.data(), s.data());
  EXPECT_EQ(s[0], 1.0f / 448);
  EXPECT_EQ(s[1], 1.0f / 448);
  EXPECT_EQ(s[2], 1.0f / 448);
  EXPECT_EQ(s[3], 7.0f / 448);
  EXPECT_EQ(q[129 * 129 + 128], float_to_f8e4m3(448));
}

TEST(Mxfp4, BothExponentsAreTriedAndTheBetterIsTaken) {
  std::vector<float> w(64, 0.0f);
  w[0] = 7.5f;                                   // alone: cutting it to 6 costs more than halving the steps
  for (size_t i = 32; i < 64; ++i) w[i] = 0.5f;  // many small values and one that is cut a little
  w[32] = 6.5f;
  std::vector<uint8_t> q(32), e(2);
  encode(w.data(), DType::kF32, {Coding::kMxfp4, 1, 64, q.data(), e.data()});
  EXPECT_EQ(e[0], 128);
  EXPECT_EQ(e[1], 127);
  EXPECT_EQ(q[0] & 15, float_to_e2m1(3.75f));
  EXPECT_EQ(q[16] & 15, 7);
  EXPECT_EQ(q[16] >> 4, 1);
}

TEST(Encoders, SameBytesOnOneAndTwoThreads) {
  const auto w = noise(384 * 320, 0.1f);
  std::vector<uint8_t> q[2], e[2];
  std::vector<float> s[2];
  const int threads = num_threads();
  for (int i = 0; i < 2; ++i) {
    set_num_threads(i + 1);
    q[i].resize(w.size());
    e[i].resize(w.size() / 32);
    s[i].resize(9);
    fp8_by_block(w.data(), 384, 320, q[i].data(), s[i].data());
    std::vector<uint8_t> packed(w.size() / 2);
    encode(w.data(), DType::kF32, {Coding::kMxfp4, 384, 320, packed.data(), e[i].data()});
    q[i].insert(q[i].end(), packed.begin(), packed.end());
  }
  set_num_threads(threads);
  EXPECT_EQ(q[0], q[1]);
  EXPECT_EQ(s[0], s[1]);
  EXPECT_EQ(e[0], e[1]);
}

TEST(Largest, WhatIsNotFiniteIsInfinite) {
  const float w[] = {1, -2, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(largest(w, 2), 2.0f);
  EXPECT_TRUE(std::isinf(largest(w, 3)));
}

}  // namespace
}  // namespace mxt::quantize
