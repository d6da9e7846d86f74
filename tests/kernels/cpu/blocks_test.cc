#include "kernels/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/threads.h"
#include "kernels/cpu/rows/blocks.h"

namespace mxt::kernels {
namespace {

BlockMatrix make(BlockKind kind, int64_t rows, int64_t cols, std::vector<float>& values) {
  BlockMatrix m(kind, rows, cols);
  std::mt19937 random(static_cast<unsigned>(rows * 31 + cols));
  values.resize(static_cast<size_t>(rows * cols));
  const size_t bytes = BlockMatrix::block_bytes(kind);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<std::byte> row(static_cast<size_t>(cols / 32) * bytes);
    for (int64_t b = 0; b < cols / 32; ++b) {
      std::byte* p = row.data() + static_cast<size_t>(b) * bytes;
      const uint16_t d = float_to_f16(0.001f * static_cast<float>(1 + random() % 50)), lo = float_to_f16(-0.01f * static_cast<float>(random() % 30));
      std::memcpy(p, &d, 2);
      if (kind == BlockKind::kQ4) std::memcpy(p + 2, &lo, 2);
      for (size_t i = kind == BlockKind::kQ4 ? 4 : 2; i < bytes; ++i) p[i] = static_cast<std::byte>(random() % 256);
      if (kind == BlockKind::kQ8 && b == 0) p[2] = static_cast<std::byte>(0x80);  // −128, whose magnitude int8 has not
      for (int k = 0; k < 32; ++k) {
        float& v = values[static_cast<size_t>(r * cols + b * 32 + k)];
        if (kind == BlockKind::kQ4) {
          const auto byte = std::to_integer<int>(p[4 + k % 16]);
          v = f16_to_float(d) * static_cast<float>(k < 16 ? byte & 15 : byte >> 4) + f16_to_float(lo);
        } else {
          v = f16_to_float(d) * static_cast<float>(static_cast<int8_t>(std::to_integer<int>(p[2 + k])));
        }
      }
    }
    m.set_row(r, row.data());
  }
  return m;
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
INSTANTIATE_TEST_SUITE_P(Kinds, Blocks, testing::Values(BlockKind::kQ4, BlockKind::kQ8));

TEST_P(Blocks, RowsAreWhatWasPut) {
  std::vector<float> values;
  const BlockMatrix m = make(GetParam(), 16, 96, values);
  std::vector<float> row(96);
  for (int64_t r = 0; r < 16; ++r) {
    m.read_row(r, row.data());
    for (size_t k = 0; k < 96; ++k) EXPECT_EQ(row[k], values[static_cast<size_t>(r) * 96 + k]);
  }
  const int32_t ids[] = {3, 15, 0};
  std::vector<float> y(3 * 96);
  cpu::block_rows(m, ids, {y.data(), 3, 96, 96, DType::kF32});
  EXPECT_EQ(y[96 + 5], values[15 * 96 + 5]);
}

TEST_P(Blocks, ProductsAreRightWithinTheRoundingOfX) {
  std::vector<float> values;
  const int64_t n = 40, k = 576, m = 9;
  const BlockMatrix w = make(GetParam(), n, k, values);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k));
  for (float& v : x) v = normal(random);
  std::fill(x.begin(), x.begin() + 64, 0.0f);
  const auto got = product(w, x, m);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = 0, error = 0;
      for (int64_t b = 0; b < k / 32; ++b) {
        double top = 0;
        for (int64_t c = 0; c < 32; ++c) top = std::max(top, std::abs(static_cast<double>(x[static_cast<size_t>(i * k + b * 32 + c)])));
        for (int64_t c = 0; c < 32; ++c) {
          const double v = values[static_cast<size_t>(j * k + b * 32 + c)];
          want += v * static_cast<double>(x[static_cast<size_t>(i * k + b * 32 + c)]);
          error += std::abs(v) * top / 254;
        }
      }
      EXPECT_NEAR(got[static_cast<size_t>(i * n + j)], want, error * 1.01 + 1e-4);
    }
}

TEST_P(Blocks, ATokensBitsDependOnNothingElse) {
  std::vector<float> values;
  const int64_t n = 264, k = 1536, m = 37;
  const BlockMatrix w = make(GetParam(), n, k, values);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k));
  for (float& v : x) v = normal(random);
  const auto all = product(w, x, m);
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (int64_t i = 0; i < m; ++i) {
      const auto one = product(w, std::vector<float>(x.begin() + i * k, x.begin() + (i + 1) * k), 1);
      ASSERT_EQ(std::memcmp(one.data(), all.data() + i * n, static_cast<size_t>(n) * 4), 0) << i;
    }
  }
  set_num_threads(2);
}

TEST_P(Blocks, EveryInstructionSetGivesTheSameBits) {
  const cpu::BlockKernels* fast = cpu::avx2_blocks();
  if (!fast) GTEST_SKIP() << "no AVX2 here";
  std::vector<float> values;
  const BlockMatrix w = make(GetParam(), 8, 320, values);
  std::vector<float> x(320);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& v : x) v = 1e-3f * normal(random);
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  int8_t q[2][320];
  float d[2][10], s[2][10], out[2][8];
  int i = 0;
  for (const cpu::BlockKernels* kernels : {&cpu::portable_blocks(), fast}) {
    for (int b = 0; b < 10; ++b) kernels->round(x.data() + 32 * b, q[i] + 32 * b, d[i] + b, s[i] + b);
    cpu::BlockTile t;
    t.group = w.group(0);
    t.blocks = 10;
    t.tokens = 1;
    t.x[0] = q[i];
    t.dx[0] = d[i];
    t.sx[0] = s[i];
    t.out[0] = out[i];
    (GetParam() == BlockKind::kQ4 ? kernels->q4 : kernels->q8)(t);
    ++i;
  }
  EXPECT_EQ(std::memcmp(q[0], q[1], 320), 0);
  EXPECT_EQ(std::memcmp(d[0], d[1], sizeof d[0]), 0);
  EXPECT_EQ(std::memcmp(s[0], s[1], sizeof s[0]), 0);
  EXPECT_EQ(std::memcmp(out[0], out[1], sizeof out[0]), 0);
}

}  // namespace
}  // namespace mxt::kernels
