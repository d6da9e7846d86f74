#include <fmt/format.h>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(GemmOps);

struct Size {
  int64_t m, n, k;
};

void check_gemm(const Backend& backend, const Size& s, bool ta, bool tb, DType type, DType out, bool accumulate,
                bool bias, int algo) {
  SCOPED_TRACE(fmt::format("{} m{} n{} k{} {}{} {}>{} acc {} bias {}",
                           backend.ops->gemm_algorithms()[static_cast<size_t>(algo)], s.m, s.n, s.k, ta ? 't' : 'n',
                           tb ? 't' : 'n', label(type), label(out), accumulate, bias));
  // A device may add the bias in a pass of its own, and round once more.
  const bool again = bias && out == DType::kBF16 && backend.ops->device();
  check_op(backend,
           [&](Trial& r) {
             Gemm g;
             g.a = ta ? r.input(s.k, s.m, type, 1) : r.input(s.m, s.k, type, 1);
             g.b = tb ? r.input(s.n, s.k, type, 2) : r.input(s.k, s.n, type, 2);
             g.c = accumulate ? r.inout("c", s.m, s.n, out, 3) : r.output("c", s.m, s.n, out);
             g.trans_a = ta, g.trans_b = tb, g.accumulate = accumulate;
             g.alpha = accumulate ? 0.5f : 1.0f;
             if (bias) g.bias = r.param(s.n, type, 4), g.bias_type = type;
             g.algo = r.ops().name() == "reference" ? 0 : algo;
             r.scratch(r.ops().gemm_scratch(g));
             r.ops().gemm(g);
           },
           {again ? 0x1p-6 : 1e-5, again ? 0x1p-6 : 5e-5});
}

TEST_P(GemmOps, EveryAlgorithmEveryForm) {
  const Size sizes[] = {{1, 1, 1}, {7, 3, 65}, {65, 33, 64}, {1, 577, 64}, {64, 64, 7}, {16, 96, 300}};
  const auto algorithms = static_cast<int>(GetParam().ops->gemm_algorithms().size());
  ASSERT_GE(algorithms, 1);
  for (int algo = 0; algo < algorithms; ++algo)
    for (const Size& s : sizes)
      for (int form = 0; form < 4; ++form)
        for (DType type : kTypes)
          for (DType out : kTypes)
            for (int mode = 0; mode < 3; ++mode)
              check_gemm(GetParam(), s, form & 1, form & 2, type, out, mode == 1, mode == 2, algo);
}

TEST_P(GemmOps, TrainingShapesKeepTheirBitsForAnyNumberOfThreads) {
  const Size sizes[] = {{130, 200, 96}, {48, 16, 1030}};
  const auto algorithms = static_cast<int>(GetParam().ops->gemm_algorithms().size());
  for (int algo = 0; algo < algorithms; ++algo)
    for (DType type : kTypes) {
      check_gemm(GetParam(), sizes[0], false, true, type, type, false, false, algo);
      check_gemm(GetParam(), sizes[0], false, false, type, type, false, false, algo);
      check_gemm(GetParam(), sizes[1], true, false, type, DType::kF32, true, false, algo);
    }
}

bool ends_products_in_relu2(Ops& ops) {
  for (const BackendInfo& b : kernels::backends())
    if (b.kind == ops.name() && b.relu2_products != nullptr)
      return b.relu2_products(ops.device()->properties().arch.substr(0, 5));  // sm_90 of sm_90a
  return false;
}

TEST_P(GemmOps, EndsInRelu2) {
  const Size sizes[] = {{1, 8, 8}, {300, 520, 200}, {128, 256, 64}, {257, 1032, 72}, {700, 264, 328}};
  for (const Size& s : sizes)
    for (bool gradient : {false, true}) {
      SCOPED_TRACE(fmt::format("m{} n{} k{} gradient {}", s.m, s.n, s.k, gradient));
      const Op op = [&](Trial& r) {
        Gemm g;
        g.a = r.input(s.m, s.k, DType::kBF16, 1);
        g.b = gradient ? r.input(s.k, s.n, DType::kBF16, 2) : r.input(s.n, s.k, DType::kBF16, 2);
        g.c = r.output("c", s.m, s.n, DType::kBF16);
        g.trans_b = g.relu2 = !gradient;
        if (gradient) {
          std::vector<double> y(static_cast<size_t>(s.m * s.n));
          for (size_t i = 0; i < y.size(); ++i) y[i] = i % 3 == 0 ? 0 : static_cast<double>(i * 37 % 101) * 0.25;
          g.relu2_of = r.values(y, s.m, s.n, DType::kBF16);
        }
        r.scratch(r.ops().gemm_scratch(g));
        r.ops().gemm(g);
      };
      constexpr int64_t kGap = 8;  // rows of whole 16 bytes
      if (ends_products_in_relu2(*GetParam().ops))
        expect_close(run(reference_backend(), op, kGap), run(GetParam(), op, kGap), {1e-5, 1e-4});
      else
        EXPECT_THROW(run(GetParam(), op, kGap), Error);
    }
}

}  // namespace
}  // namespace mxt::kernels::test
