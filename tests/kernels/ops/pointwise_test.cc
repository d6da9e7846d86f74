#include <fmt/format.h>

#include <cmath>
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(PointwiseOps);

struct Shape {
  int64_t rows, cols;
};
const Shape kShapes[] = {{1, 1}, {7, 3}, {65, 64}, {65, 577}, {1, 576}};
const Activation kKinds[] = {Activation::kSwiGlu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu2,
                             Activation::kGeGlu};

TEST_P(PointwiseOps, Activations) {
  for (Activation kind : kKinds)
    for (DType type : kTypes)
      for (const Shape s : kShapes)
        for (double scale : {1.0, 6.0}) {
          SCOPED_TRACE(
              fmt::format("kind {} {} {}x{} scale {}", static_cast<int>(kind), label(type), s.rows, s.cols, scale));
          check_op(GetParam(),
                   [&](Trial& r) {
                     Act a;
                     a.kind = kind;
                     a.x = r.input(s.rows, gated(kind) ? 2 * s.cols : s.cols, type, 1, scale);
                     a.y = r.output("y", s.rows, s.cols, type);
                     r.ops().act(a);
                   },
                   {5e-6, 1e-6});
        }
}

TEST_P(PointwiseOps, ActivationGradients) {
  for (Activation kind : kKinds)
    for (DType type : kTypes)
      for (const Shape s : kShapes)
        for (bool in_place : {false, true}) {
          SCOPED_TRACE(
              fmt::format("kind {} {} {}x{} {}", static_cast<int>(kind), label(type), s.rows, s.cols, in_place));
          check_op(GetParam(),
                   [&](Trial& r) {
                     ActGrad a;
                     a.kind = kind;
                     const int64_t cols = gated(kind) ? 2 * s.cols : s.cols;
                     a.dy = r.input(s.rows, s.cols, type, 2);
                     if (in_place) {
                       a.dx = r.inout("dx", s.rows, cols, type, 1, 4);
                       a.x = a.dx;
                     } else {
                       a.x = r.input(s.rows, cols, type, 1, 4);
                       a.dx = r.output("dx", s.rows, cols, type);
                     }
                     r.ops().act_grad(a);
                   },
                   {1e-5, 3e-6});
        }
}

TEST_P(PointwiseOps, ActivationsOfExtremeValuesStayFinite) {
  const std::vector<float> x{-1e4f, -200,   -100, -88.5f, -87,   -20, -1e-20f, -0.0f,
                             0,     1e-20f, 20,   87,     88.5f, 100, 200,     1e4f};
  const auto n = static_cast<int64_t>(x.size());
  for (Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const bool glu = gated(kind);
    std::vector<float> in = x;
    if (glu) in.insert(in.end(), x.size(), 1.0f);
    check_op(GetParam(),
             [&](Trial& r) {
               const ConstMat m(r.floats(in), 1, static_cast<int64_t>(in.size()), static_cast<int64_t>(in.size()),
                                DType::kF32);
               Act a{kind, m, r.output("y", 1, n, DType::kF32)};
               r.ops().act(a);
               ActGrad g{kind,
                         m,
                         {r.floats(std::vector<float>(x.size(), 1.0f)), 1, n, n, DType::kF32},
                         r.output("dx", 1, m.cols, DType::kF32)};
               r.ops().act_grad(g);
             },
             {1e-5, 1e-6});
  }
}

TEST_P(PointwiseOps, AddMayWriteOverAnOperand) {
  for (DType type : kTypes)
    for (const Shape s : kShapes)
      for (int alias = 0; alias < 3; ++alias) {
        SCOPED_TRACE(fmt::format("{} {}x{} alias {}", label(type), s.rows, s.cols, alias));
        check_op(GetParam(), [&](Trial& r) {
          Add a;
          a.y = alias == 0 ? r.output("y", s.rows, s.cols, type) : r.inout("y", s.rows, s.cols, type, 3);
          a.a = alias == 1 ? ConstMat(a.y) : r.input(s.rows, s.cols, type, 1);
          a.b = alias == 2 ? ConstMat(a.y) : r.input(s.rows, s.cols, type, 2);
          r.ops().add(a);
        });
      }
}

TEST_P(PointwiseOps, DropoutKeepsTheSameElementsEverywhere) {
  const Shape shapes[] = {{1, 1}, {7, 3}, {65, 577}, {9, 5000}};
  for (DType type : kTypes)
    for (const Shape s : shapes)
      for (float p : {0.0f, 0.1f, 0.5f, 1.0f})
        for (bool in_place : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {}x{} p {} {}", label(type), s.rows, s.cols, p, in_place));
          check_op(GetParam(), [&](Trial& r) {
            Dropout d;
            d.y = in_place ? r.inout("y", s.rows, s.cols, type, 1) : r.output("y", s.rows, s.cols, type);
            d.x = in_place ? ConstMat(d.y) : r.input(s.rows, s.cols, type, 1);
            d.p = p;
            d.seed = 0x123456789abcdefull;
            d.stream = 0xfedcba9876543210ull;
            d.first_row = in_place ? 0 : 3;
            r.ops().dropout(d);
          });
        }
}

TEST_P(PointwiseOps, NotANumberIsPassedOn) {
  const float nan = NAN;
  const std::vector<float> x{1, nan, 3, nan};
  for (Activation kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto out = run(GetParam(), [&](Trial& r) {
      Act a{kind, {r.floats(x), 1, 4, 4, DType::kF32}, r.output("y", 1, gated(kind) ? 2 : 4, DType::kF32)};
      r.ops().act(a);
    });
    EXPECT_FALSE(std::isnan(out[0].values[0]));
    EXPECT_TRUE(std::isnan(out[0].values[1]));
  }
}

}  // namespace
}  // namespace mxt::kernels::test
