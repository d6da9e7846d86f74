#include <fmt/format.h>

#include <cmath>

#include "kernels/adapters.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(AdapterOps);

Variants* variants(Trial& r) { return dynamic_cast<Variants*>(&r.ops()); }

bool has_variants(const Backend& b) { return dynamic_cast<Variants*>(b.ops) != nullptr; }

struct Shape {
  int64_t rows, cols, rank;
};
const Shape kShapes[] = {{1, 1, 1}, {7, 5, 3}, {65, 40, 8}, {130, 300, 17}};

TEST_P(AdapterOps, LengthsOfAdaptedRows) {
  if (!has_variants(GetParam())) GTEST_SKIP() << GetParam().name << " has no variants of adapters";
  for (DType type : kTypes)
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}x{} rank {}", label(type), s.rows, s.cols, s.rank));
      check_op(GetParam(),
               [&](Trial& r) {
                 DoraGain d;
                 d.w = r.input(s.rows, s.cols, type, 1), d.p = r.input(s.rows, s.rank, type, 2, 0.1);
                 d.q = r.values(std::vector<double>(static_cast<size_t>(s.rank * s.rank), 0.25), s.rank, s.rank, type);
                 d.b = r.input(s.rows, s.rank, type, 3, 0.1);
                 d.m = r.floats(std::vector<float>(static_cast<size_t>(s.rows), 1.5f));
                 d.scale = 0.5f, d.rows = s.rows;
                 d.gain = r.output_floats("gain", s.rows), d.norm = r.output_floats("norm", s.rows);
                 variants(r)->dora_gain(d);
               },
               {1e-5, 1e-5});
    }
}

// What the products say of ‖W + scale·B·A‖ is what the matrix itself says.
TEST_P(AdapterOps, LengthIsThatOfTheSum) {
  if (!has_variants(GetParam())) GTEST_SKIP() << GetParam().name << " has no variants of adapters";
  Trial r(GetParam());
  constexpr int64_t kRows = 4, kCols = 6, kRank = 2;
  const ConstMat w = r.input(kRows, kCols, DType::kF32, 1), a = r.input(kRank, kCols, DType::kF32, 2),
                 b = r.input(kRows, kRank, DType::kF32, 3);
  const std::vector<double> wv = r.read(w), av = r.read(a), bv = r.read(b);
  std::vector<double> p(kRows * kRank), q(kRank * kRank);
  const auto at = [](const std::vector<double>& m, int64_t cols, int64_t i, int64_t j) {
    return m[static_cast<size_t>(i * cols + j)];
  };
  for (int64_t k = 0; k < kCols; ++k)
    for (int64_t j = 0; j < kRank; ++j) {
      for (int64_t i = 0; i < kRows; ++i)
        p[static_cast<size_t>(i * kRank + j)] += at(wv, kCols, i, k) * at(av, kCols, j, k);
      for (int64_t i = 0; i < kRank; ++i)
        q[static_cast<size_t>(i * kRank + j)] += at(av, kCols, i, k) * at(av, kCols, j, k);
    }
  DoraGain d;
  d.w = w, d.b = b, d.p = r.values(p, kRows, kRank, DType::kF32), d.q = r.values(q, kRank, kRank, DType::kF32);
  d.m = r.floats({1, 2, 3, 4}), d.scale = 0.7f, d.rows = kRows;
  d.gain = r.output_floats("gain", kRows), d.norm = r.output_floats("norm", kRows);
  variants(r)->dora_gain(d);
  const auto out = r.finish();
  for (int64_t i = 0; i < kRows; ++i) {
    double squared = 0;
    for (int64_t k = 0; k < kCols; ++k) {
      double v = at(wv, kCols, i, k);
      for (int64_t j = 0; j < kRank; ++j) v += static_cast<double>(0.7f) * at(bv, kRank, i, j) * at(av, kCols, j, k);
      squared += v * v;
    }
    EXPECT_NEAR(out[1].values[static_cast<size_t>(i)], std::sqrt(squared), 1e-5);
    EXPECT_NEAR(out[0].values[static_cast<size_t>(i)], static_cast<double>(i + 1) / std::sqrt(squared), 1e-5);
  }
}

TEST_P(AdapterOps, ColumnsWithoutAnAdapterPass) {
  if (!has_variants(GetParam())) GTEST_SKIP() << GetParam().name << " has no variants of adapters";
  check_op(GetParam(), [&](Trial& r) {
    DoraGain d;
    d.rows = 9, d.gain = r.output_floats("gain", 9), d.norm = r.output_floats("norm", 9);
    variants(r)->dora_gain(d);
  });
}

TEST_P(AdapterOps, ScalesColumnsAndItsGradients) {
  if (!has_variants(GetParam())) GTEST_SKIP() << GetParam().name << " has no variants of adapters";
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const bool more : {false, true}) {  // with a bias; adding to the magnitudes' gradient
        SCOPED_TRACE(fmt::format("{} {}x{} {}", label(type), s.rows, s.cols, more));
        std::vector<float> gain, norm;
        for (int64_t i = 0; i < s.cols; ++i) {
          gain.push_back(0.5f + 0.01f * static_cast<float>(i));
          norm.push_back(2.0f + 0.02f * static_cast<float>(i));
        }
        check_op(GetParam(),
                 [&](Trial& r) {
                   DoraScale d;
                   d.u = r.input(s.rows, s.cols, type, 1), d.gain = r.floats(gain);
                   if (more) d.bias = r.param(s.cols, type, 2), d.bias_type = type;
                   d.y = r.output("y", s.rows, s.cols, type);
                   variants(r)->dora_scale(d);
                 },
                 {1e-5, 1e-5});
        check_op(GetParam(),
                 [&](Trial& r) {
                   DoraScaleGrad d;
                   d.dy = r.input(s.rows, s.cols, type, 3), d.u = r.input(s.rows, s.cols, type, 1);
                   d.gain = r.floats(gain), d.norm = r.floats(norm);
                   d.du = r.output("du", s.rows, s.cols, type);
                   d.accumulate = more;
                   d.dm = more ? r.inout_floats("dm", s.cols, 4) : r.output_floats("dm", s.cols);
                   variants(r)->dora_scale_grad(d);
                 },
                 {1e-4, 1e-4});
      }
}

TEST_P(AdapterOps, NoiseIsOfTheDocumentsLengthAndOfTheRow) {
  if (!has_variants(GetParam())) GTEST_SKIP() << GetParam().name << " has no variants of adapters";
  for (DType type : kTypes)
    check_op(GetParam(),
             [&](Trial& r) {
               EmbeddingNoise e;
               e.x = r.input(12, 10, type, 1), e.y = r.output("y", 12, 10, type);
               e.cu_seqlens = r.ints({0, 3, 12}), e.documents = 2;
               e.alpha = 5, e.seed = 9, e.stream = 4, e.first_row = 7;
               variants(r)->embedding_noise(e);
             },
             {1e-6, 1e-6});
  // Bounded by alpha/√(L·width), spread over both halves, and the same for a row wherever its batch begins.
  const auto noise = [&](int64_t first_row, std::vector<int32_t> ends) {
    Trial r(GetParam());
    const int64_t rows = ends.back();
    EmbeddingNoise e;
    e.x = r.values(std::vector<double>(static_cast<size_t>(rows * 64)), rows, 64, DType::kF32);
    e.y = r.output("y", rows, 64, DType::kF32);
    e.documents = static_cast<int64_t>(ends.size());
    ends.insert(ends.begin(), 0);
    e.cu_seqlens = r.ints(ends);
    e.alpha = 5, e.seed = 9, e.stream = 4, e.first_row = first_row;
    variants(r)->embedding_noise(e);
    return r.finish()[0].values;
  };
  const auto all = noise(0, {4, 20}), part = noise(4, {16});
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(all[4 * 64 + i], part[i]);
  double sum = 0, most = 0;
  for (size_t i = 0; i < 4 * 64; ++i) sum += all[i], most = std::max(most, std::abs(all[i]));
  EXPECT_LE(most, 5 / std::sqrt(4.0 * 64));
  EXPECT_GT(most, 0.95 * 5 / std::sqrt(4.0 * 64));
  EXPECT_LT(std::abs(sum), 12.0);  // about three deviations of 256 draws
}

}  // namespace
}  // namespace mxt::kernels::test
