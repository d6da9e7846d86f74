// The optimizers beside AdamW (training_test.cc).
#include <fmt/format.h>

#include <cmath>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(OptimizerOps);

OptTensor tensor(Trial& r, int64_t n, uint64_t& seed, bool copy) {
  OptTensor t;
  t.n = n;
  t.master = r.inout_floats(fmt::format("master{}", n), n, seed++);
  t.grad = static_cast<const float*>(r.param(n, DType::kF32, seed++));
  t.m = r.inout_floats(fmt::format("m{}", n), n, seed++, 0.1);
  if (copy) t.copy = static_cast<uint16_t*>(r.output(fmt::format("copy{}", n), 1, n, DType::kBF16).p);
  t.lr = n == 3 ? 0.0f : 1e-2f;
  t.weight_decay = n == 577 ? 0.0f : 0.1f;
  return t;
}

TEST_P(OptimizerOps, LionOverManyTensors) {
  check_op(GetParam(),
           [&](Trial& r) {
             Lion l;
             l.grad_scale = 0.5f;
             l.device_grad_scale = r.floats({0.75f});
             uint64_t seed = 1;
             for (int64_t n : {1, 7, 0, 577, 40000, 3}) l.tensors.push_back(tensor(r, n, seed, n != 7));
             r.ops().lion(l);
           },
           {1e-6, 1e-7});
}

// Neither a gradient nor a momentum: only the decay is left.
TEST_P(OptimizerOps, LionWithoutADirectionStaysWhereItIs) {
  check_op(GetParam(), [&](Trial& r) {
    Lion l;
    OptTensor t;
    t.n = 40;
    t.master = r.inout_floats("master", t.n, 1);
    t.grad = r.floats(std::vector<float>(40, 0.0f));
    t.m = r.inout_floats("m", t.n, 2, 0);
    t.lr = 0.1f;
    l.tensors = {t};
    r.ops().lion(l);
  });
}

// Blocks of 256, the last one shorter; a block of zeros; states of any code.
TEST_P(OptimizerOps, AdamW8bitOverManyTensors) {
  for (const bool fresh : {true, false})
    check_op(GetParam(),
             [&](Trial& r) {
               AdamW8bit a;
               a.grad_scale = 0.5f;
               a.step = fresh ? 1 : 3;
               uint64_t seed = 1;
               for (int64_t n : {1, 0, 256, 300, 20000, 3}) {
                 Opt8Tensor t;
                 t.n = n;
                 const int64_t blocks = state_blocks(n);
                 t.master = r.inout_floats(fmt::format("master{}", n), n, seed++);
                 t.grad = static_cast<const float*>(r.param(n, DType::kF32, seed++, n == 256 ? 0.0 : 1.0));
                 const double scale = fresh || n == 256 ? 0 : 1;
                 t.m = static_cast<uint8_t*>(r.inout_bytes(fmt::format("m{}", n), n, DType::kU8, seed++));
                 t.v = static_cast<uint8_t*>(r.inout_bytes(fmt::format("v{}", n), n, DType::kU8, seed++));
                 t.m_largest = r.inout_floats(fmt::format("m_largest{}", n), blocks, seed++, 0.01 * scale, 0.3 * scale);
                 t.v_largest = r.inout_floats(fmt::format("v_largest{}", n), blocks, seed++, 0.01 * scale, 0.5 * scale);
                 if (n != 300)
                   t.copy = static_cast<uint16_t*>(r.output(fmt::format("copy{}", n), 1, n, DType::kBF16).p);
                 t.lr = n == 3 ? 0.0f : 1e-2f;
                 t.weight_decay = 0.1f;
                 a.tensors.push_back(t);
               }
               r.ops().adamw_8bit(a);
             },
             {2e-6, 2e-6});
}

TEST_P(OptimizerOps, AdafactorOfMatricesAndVectors) {
  for (const double size : {1.0, 1e-4})
    check_op(GetParam(),
             [&](Trial& r) {
               Adafactor a;
               a.device_grad_scale = r.floats({0.5f});
               a.decay = 0.6;
               uint64_t seed = 1;
               struct Shape {
                 int64_t rows, cols;
                 bool matrix;
               };
               for (const Shape s : {Shape{7, 5, true},
                                     {1, 9, true},
                                     {300, 70, true},
                                     {40, 1000, true},
                                     {1, 577, false},
                                     {1, 20000, false},
                                     {0, 8, true}}) {
                 AdafactorTensor t;
                 const int64_t n = s.rows * s.cols;
                 const std::string at = fmt::format("{}x{}", s.rows, s.cols);
                 t.rows = s.rows, t.cols = s.cols;
                 t.master = r.inout_floats("master" + at, n, seed++);
                 t.grad = static_cast<const float*>(r.param(n, DType::kF32, seed++, size));
                 if (s.matrix) {
                   t.row = r.inout_floats("row" + at, s.rows, seed++, 0.02 * size * size, 0.3 * size * size);
                   t.col = r.inout_floats("col" + at, s.cols, seed++, 0.02 * size * size, 0.3 * size * size);
                 } else {
                   t.v = r.inout_floats("v" + at, n, seed++, 0.02 * size * size, 0.3 * size * size);
                 }
                 if (s.rows != 7) t.copy = static_cast<uint16_t*>(r.output("copy" + at, 1, n, DType::kBF16).p);
                 t.lr = 1e-2f;
                 t.weight_decay = 0.1f;
                 a.tensors.push_back(t);
               }
               r.ops().adafactor(a);
             },
             {1e-5, 1e-7});
}

struct Matrix {
  int64_t rows, cols;
};
const Matrix kMatrices[] = {{1, 24}, {12, 40}, {40, 40}, {300, 33}, {33, 300}, {130, 1000}, {1000, 130}};

// Without a gap between rows, as the calls want it.
Mat dense(Trial& r, const std::string& name, const Matrix& m, DType type, uint64_t seed) {
  return {r.inout_bytes(name, m.rows * m.cols, type, seed), m.rows, m.cols, m.cols, type};
}

TEST_P(OptimizerOps, MuonDirection) {
  for (const DType type : kTypes)
    for (const Matrix& s : kMatrices)
      for (const bool equalise : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {}x{} equalise {}", label(type), s.rows, s.cols, equalise));
        check_op(GetParam(),
                 [&](Trial& r) {
                   MuonDirection m;
                   m.grad = static_cast<const float*>(r.param(s.rows * s.cols, DType::kF32, 1, 1e-2));
                   m.momentum = r.inout_floats("momentum", s.rows * s.cols, 2, 1e-2);
                   m.x = dense(r, "x", s, type, 3);
                   m.mu = 0.9;
                   m.equalise = equalise;
                   m.grad_scale = 0.5f;
                   m.device_grad_scale = r.floats({0.25f});
                   r.ops().muon_direction(m);
                 },
                 {2e-6, type == DType::kF32 ? 1e-6 : 2e-4});
      }
}

TEST_P(OptimizerOps, MuonUpdate) {
  for (const DType type : kTypes)
    for (const Matrix& s : kMatrices)
      for (const bool nanochat : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {}x{} nanochat {}", label(type), s.rows, s.cols, nanochat));
        check_op(GetParam(),
                 [&](Trial& r) {
                   MuonUpdate m;
                   const int64_t n = s.rows * s.cols;
                   m.master = r.inout_floats("master", n, 1);
                   if (s.rows != 12) m.copy = static_cast<uint16_t*>(r.output("copy", 1, n, DType::kBF16).p);
                   m.x = {r.param(n, type, 2, 0.1), s.rows, s.cols, s.cols, type};
                   if (nanochat) m.second = r.inout_floats("second", std::max(s.rows, s.cols), 3, 1e-3, 1e-2);
                   m.cautious = nanochat;
                   m.lr = 0.02f;
                   m.weight_decay = 0.1f;
                   r.ops().muon_update(m);
                 },
                 {3e-6, 1e-6});
      }
}

// Projections that begin at zero have no gradient in the first step: nothing moves but by the decay, and nothing is
// NaN.
TEST_P(OptimizerOps, MuonOfZerosIsZero) {
  for (const DType type : kTypes)
    for (const Matrix& s : {Matrix{12, 40}, Matrix{40, 12}})
      check_op(GetParam(), [&](Trial& r) {
        const int64_t n = s.rows * s.cols;
        MuonDirection d;
        d.grad = r.floats(std::vector<float>(static_cast<size_t>(n), 0.0f));
        d.momentum = r.inout_floats("momentum", n, 1, 0);
        d.x = dense(r, "x", s, type, 3);
        r.ops().muon_direction(d);
        MuonUpdate u;
        u.master = r.inout_floats("master", n, 4);
        u.x = d.x;
        u.second = r.inout_floats("second", 40, 5, 0);
        u.lr = 0.1f;
        u.weight_decay = 0.5f;
        r.ops().muon_update(u);
        for (const double x : r.read({d.x})) EXPECT_EQ(x, 0);
      });
}

TEST(DynamicMap, IsBitsandbytes) {
  const float* with = dynamic_map(true);
  const float* without = dynamic_map(false);
  EXPECT_EQ(with[127], 0);
  EXPECT_EQ(with[255], 1);
  EXPECT_FLOAT_EQ(with[0], -0.99296875f);
  EXPECT_FLOAT_EQ(with[254], 0.99296875f);
  EXPECT_FLOAT_EQ(with[128], 5.5e-7f);
  EXPECT_EQ(without[0], 0);
  EXPECT_EQ(without[255], 1);
  EXPECT_FLOAT_EQ(without[1], 3.25e-7f);
  EXPECT_FLOAT_EQ(without[254], 0.996484375f);
}

}  // namespace
}  // namespace mxt::kernels::test
