#include "kernels/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/threads.h"

namespace mxt::kernels {
namespace {

BlockMatrix make(BlockKind kind, int64_t rows, int64_t cols, std::vector<float>& values) {
  BlockMatrix m(kind, rows, cols);
  std::mt19937 random(static_cast<unsigned>(rows * 31 + cols));
  std::normal_distribution<float> normal(0, 0.02f);
  values.resize(static_cast<size_t>(rows * cols));
  const size_t bytes = BlockMatrix::block_bytes(kind);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<std::byte> row(static_cast<size_t>(cols / 32) * bytes);
    for (int64_t b = 0; b < cols / 32; ++b) {
      std::byte* p = row.data() + static_cast<size_t>(b) * bytes;
      float* const v = values.data() + r * cols + b * 32;
      if (kind == BlockKind::kBF16) {
        for (size_t k = 0; k < 32; ++k) {
          const uint16_t x = float_to_bf16(normal(random));
          v[k] = bf16_to_float(x);
          std::memcpy(p + 2 * k, &x, 2);
        }
        continue;
      }
      if (kind == BlockKind::kQ4F || kind == BlockKind::kQ8F) {
        const size_t scales = BlockMatrix::scale_bytes(kind);
        const bool nibbles = kind == BlockKind::kQ4F;
        // Scales of 17 bits as a K-quant's are, products with q exact.
        auto scale = [&] { return std::ldexp(static_cast<float>(1 + random() % 0x1FFFF), -26); };
        const float d[2] = {scale(), scale()}, least = -64 * scale();
        std::memcpy(p, d, 8);
        std::memcpy(p + scales - 4, &least, 4);
        for (size_t i = scales; i < bytes; ++i) p[i] = static_cast<std::byte>(random() % 256);
        for (int k = 0; k < 32; ++k) {
          const auto byte = std::to_integer<int>(p[scales + static_cast<size_t>(nibbles ? k % 16 : k)]);
          const int q = !nibbles ? static_cast<int8_t>(byte) : k < 16 ? byte & 15 : byte >> 4;
          v[k] = static_cast<float>(static_cast<double>(d[nibbles ? 0 : k / 16]) * q + least);
        }
        continue;
      }
      const uint16_t d = float_to_f16(0.001f * static_cast<float>(1 + random() % 50)),
                     lo = float_to_f16(-0.01f * static_cast<float>(random() % 30));
      std::memcpy(p, &d, 2);
      if (kind == BlockKind::kQ4) std::memcpy(p + 2, &lo, 2);
      for (size_t i = kind == BlockKind::kQ4 ? 4 : 2; i < bytes; ++i) p[i] = static_cast<std::byte>(random() % 256);
      if (kind == BlockKind::kQ8 && b == 0) p[2] = static_cast<std::byte>(0x80);  // −128, whose magnitude int8 has not
      for (int k = 0; k < 32; ++k) {
        if (kind == BlockKind::kQ4) {
          const auto byte = std::to_integer<int>(p[4 + k % 16]);
          v[k] = f16_to_float(d) * static_cast<float>(k < 16 ? byte & 15 : byte >> 4) + f16_to_float(lo);
        } else {
          v[k] = f16_to_float(d) * static_cast<float>(static_cast<int8_t>(std::to_integer<int>(p[2 + k])));
        }
      }
    }
    m.set_row(r, row.data());
  }
  return m;
}

std::vector<float> normals(int64_t n) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<float> product(const BlockMatrix& w, const std::vector<float>& x, int64_t m) {
  std::vector<float> out(static_cast<size_t>(m * w.rows));
  BlockGemm g;
  g.a = ConstMat(x.data(), m, w.cols, w.cols, DType::kF32);
  g.b = &w;
  g.c = {out.data(), m, w.rows, w.rows, DType::kF32};
  cpu::block_gemm(g);
  return out;
}

class Blocks : public testing::TestWithParam<BlockKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Blocks,
                         testing::Values(BlockKind::kQ4, BlockKind::kQ8, BlockKind::kBF16, BlockKind::kQ4F,
                                         BlockKind::kQ8F));

TEST_P(Blocks, RowsAreWhatWasPut) {
  std::vector<float> values;
  const BlockMatrix m = make(GetParam(), 35, 96, values);
  std::vector<float> row(96);
  for (int64_t r = 0; r < 35; ++r) {
    m.read_row(r, row.data());
    for (size_t k = 0; k < 96; ++k) EXPECT_EQ(row[k], values[static_cast<size_t>(r) * 96 + k]);
  }
  const int32_t ids[] = {3, 34, 0};
  std::vector<float> y(3 * 96);
  cpu::block_rows(m, ids, {y.data(), 3, 96, 96, DType::kF32});
  EXPECT_EQ(y[96 + 5], values[34 * 96 + 5]);
}

// Rows that fill no group, one group of a panel, both; k of a part of a panel and beyond; tokens on both sides of each
// limit.
TEST_P(Blocks, ProductsAreThoseOfTheValues) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 32}, {35, 96}, {64, 160}, {97, 576}}) {
    std::vector<float> values;
    const BlockMatrix w = make(GetParam(), n, k, values);
    for (int64_t m : {1, 2, 3, 4, 7, 8, 9, 193}) {
      const std::vector<float> x = normals(m * k);
      const auto got = product(w, x, m);
      std::vector<float> want(got.size());
      Gemm g;
      g.a = ConstMat(x.data(), m, k, k, DType::kF32), g.b = ConstMat(values.data(), n, k, k, DType::kF32),
      g.trans_b = true;
      g.c = {want.data(), m, n, n, DType::kF32};
      reference_ops().gemm(g);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-5f * std::sqrt(static_cast<float>(k)) + 1e-5f * std::abs(want[i]))
            << n << " " << k << " " << m << " " << i;
    }
  }
}

TEST_P(Blocks, TheBitsAreThoseOfPanelsWithTheValues) {
  std::vector<float> values;
  const int64_t n = 72, k = 320;
  const BlockMatrix w = make(GetParam(), n, k, values);
  for (int64_t m : {1, 3, 20}) {
    const std::vector<float> x = normals(m * k);
    std::vector<float> want(static_cast<size_t>(m * n));
    Gemm g;
    g.a = ConstMat(x.data(), m, k, k, DType::kF32), g.b = ConstMat(values.data(), n, k, k, DType::kF32),
    g.trans_b = true, g.algo = 1;
    g.c = {want.data(), m, n, n, DType::kF32};
    ASSERT_EQ(cpu_ops().gemm_algorithms()[1], "panels");
    cpu_ops().gemm(g);
    EXPECT_EQ(product(w, x, m), want) << m;
  }
}

TEST_P(Blocks, TypesStridesAndBias) {
  std::vector<float> values;
  const int64_t n = 40, k = 64;
  const BlockMatrix w = make(GetParam(), n, k, values);
  for (int64_t m : {2, 11}) {
    std::vector<float> x = normals(m * k), bias = normals(n);
    std::vector<uint16_t> x16(static_cast<size_t>(m * (k + 3))), c16(static_cast<size_t>(m * (n + 5)), 7);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < k; ++j) {
        float& v = x[static_cast<size_t>(i * k + j)];
        x16[static_cast<size_t>(i * (k + 3) + j)] = float_to_bf16(v);
        v = bf16_to_float(float_to_bf16(v));
      }
    cpu::block_gemm({ConstMat(x16.data(), m, k, k + 3, DType::kBF16),
                     &w,
                     {c16.data(), m, n, n + 5, DType::kBF16},
                     bias.data(),
                     DType::kF32});
    const auto want = product(w, x, m);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j)
        EXPECT_EQ(c16[static_cast<size_t>(i * (n + 5) + j)],
                  float_to_bf16(want[static_cast<size_t>(i * n + j)] + bias[static_cast<size_t>(j)]));
      for (int64_t j = n; j < n + 5; ++j) EXPECT_EQ(c16[static_cast<size_t>(i * (n + 5) + j)], 7);
    }
  }
}

TEST_P(Blocks, ATokensBitsDependOnNothingElse) {
  std::vector<float> values;
  const int64_t n = 264, k = 1536, m = 37;
  const BlockMatrix w = make(GetParam(), n, k, values);
  const std::vector<float> x = normals(m * k);
  const auto all = product(w, x, m);
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (int64_t i = 0; i < m; ++i) {
      const auto one = product(w, std::vector<float>(x.begin() + i * k, x.begin() + (i + 1) * k), 1);
      ASSERT_EQ(std::memcmp(one.data(), all.data() + i * n, static_cast<size_t>(n) * 4), 0) << i;
    }
    EXPECT_EQ(product(w, std::vector<float>(x.begin(), x.begin() + 3 * k), 3),
              std::vector<float>(all.begin(), all.begin() + 3 * n));
  }
  set_num_threads(2);
}

}  // namespace
}  // namespace mxt::kernels
