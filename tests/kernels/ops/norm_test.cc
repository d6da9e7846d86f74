#include <fmt/format.h>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(NormOps);

struct Shape {
  int64_t rows, cols;
};
const Shape kShapes[] = {{1, 1}, {7, 3}, {65, 64}, {33, 577}, {65, 576}, {1, 576}};

TEST_P(NormOps, NormWithAndWithoutResidualWeightAndBias) {
  for (DType type : kTypes)
    for (DType wtype : kTypes)
      for (const Shape s : kShapes)
        for (int mode = 0; mode < 8; ++mode) {
          const bool layer = mode & 1, residual = mode & 2, plain = mode & 4;
          SCOPED_TRACE(fmt::format("{} w {} {}x{} layer {} residual {} plain {}", label(type), label(wtype), s.rows,
                                   s.cols, layer, residual, plain));
          check_op(GetParam(),
                   [&](Trial& r) {
                     Norm n;
                     n.layer_norm = layer;
                     n.x = r.input(s.rows, s.cols, type, 1, 2);
                     if (residual) {
                       n.r = r.input(s.rows, s.cols, type, 2);
                       n.h = r.output("h", s.rows, s.cols, type);
                     }
                     n.y = r.output("y", s.rows, s.cols, type);
                     n.eps = 1e-5f;
                     n.wtype = wtype;
                     if (!plain) {
                       n.w = r.param(s.cols, wtype, 3, 0.1, 1);
                       n.b = layer ? r.param(s.cols, wtype, 4) : nullptr;
                       n.rstd = r.output_floats("rstd", s.rows);
                       if (layer) n.mean = r.output_floats("mean", s.rows);
                     }
                     r.ops().norm(n);
                   },
                   {1e-5, 2e-6});
        }
}

TEST_P(NormOps, NormOfLargeMeanKeepsItsVariance) {
  check_op(GetParam(),
           [&](Trial& r) {
             Norm n;
             n.layer_norm = true;
             std::vector<float> x(576);
             for (size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + static_cast<float>(i % 7);
             n.x = {r.floats(x), 1, 576, 576, DType::kF32};
             n.y = r.output("y", 1, 576, DType::kF32);
             r.ops().norm(n);
           },
           {1e-3, 1e-3});
}

TEST_P(NormOps, NormGradWithAndWithoutParametersAndResidual) {
  for (DType type : kTypes)
    for (const Shape s : kShapes)
      for (int mode = 0; mode < 16; ++mode) {
        const bool layer = mode & 1, dres = mode & 2, params = mode & 4, accumulate = mode & 8;
        if (!params && accumulate) continue;
        SCOPED_TRACE(fmt::format("{} {}x{} layer {} dres {} params {} accumulate {}", label(type), s.rows, s.cols,
                                 layer, dres, params, accumulate));
        check_op(GetParam(),
                 [&](Trial& r) {
                   NormGrad g;
                   g.layer_norm = layer;
                   g.x = r.input(s.rows, s.cols, type, 1, 2);
                   g.dy = r.input(s.rows, s.cols, type, 2);
                   std::vector<float> mean(static_cast<size_t>(s.rows), 0.25f), rstd(static_cast<size_t>(s.rows), 0.5f);
                   g.mean = layer ? r.floats(mean) : nullptr;
                   g.rstd = r.floats(rstd);
                   g.wtype = type;
                   g.accumulate = accumulate;
                   if (params) {
                     g.w = r.param(s.cols, type, 3, 0.1, 1);
                     g.dw = accumulate ? r.inout_floats("dw", s.cols, 5) : r.output_floats("dw", s.cols);
                     if (layer) g.db = accumulate ? r.inout_floats("db", s.cols, 6) : r.output_floats("db", s.cols);
                   }
                   if (dres) {  // the gradient's own buffer
                     g.dx = r.inout("dx", s.rows, s.cols, type, 4);
                     g.dres = g.dx;
                   } else {
                     g.dx = r.output("dx", s.rows, s.cols, type);
                   }
                   r.ops().norm_grad(g);
                 },
                 {1e-5, 1e-5});
      }
}

TEST_P(NormOps, NormGradOfManyRowsIsSummedInPieces) {
  check_op(GetParam(),
           [&](Trial& r) {
             NormGrad g;
             g.x = r.input(3000, 40, DType::kF32, 1);
             g.dy = r.input(3000, 40, DType::kF32, 2);
             g.dx = r.output("dx", 3000, 40, DType::kF32);
             g.rstd = r.floats(std::vector<float>(3000, 1.5f));
             g.dw = r.inout_floats("dw", 40, 3);
             g.db = r.output_floats("db", 40);
             g.accumulate = false;
             r.ops().norm_grad(g);
           },
           {1e-5, 1e-4});
}

TEST_P(NormOps, BiasGradAddsRows) {
  const Shape shapes[] = {{1, 1}, {7, 3}, {65, 577}, {3000, 33}, {300, 576}};
  for (DType type : kTypes)
    for (const Shape s : shapes)
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{} {}", label(type), s.rows, s.cols, accumulate));
        check_op(GetParam(),
                 [&](Trial& r) {
                   BiasGrad b;
                   b.dy = r.input(s.rows, s.cols, type, 1);
                   b.db = accumulate ? r.inout_floats("db", s.cols, 2) : r.output_floats("db", s.cols);
                   b.accumulate = accumulate;
                   r.ops().bias_grad(b);
                 },
                 {1e-5, 1e-4});
      }
}

TEST_P(NormOps, NoRowsGiveZeroGradients) {
  check_op(GetParam(), [&](Trial& r) {
    NormGrad g;
    g.x = r.input(0, 64, DType::kF32, 1);
    g.dy = r.input(0, 64, DType::kF32, 2);
    g.dx = r.output("dx", 0, 64, DType::kF32);
    g.dw = r.output_floats("dw", 64);
    g.accumulate = false;
    r.ops().norm_grad(g);
    BiasGrad b;
    b.dy = r.input(0, 64, DType::kF32, 2);
    b.db = r.output_floats("db", 64);
    b.accumulate = false;
    r.ops().bias_grad(b);
  });
}

}  // namespace
}  // namespace mxt::kernels::test
