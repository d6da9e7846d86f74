#include "kernels/gpt_oss.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/harness.h"

namespace mxt::kernels::test {
namespace {

MXT_OP_TESTS(GptOssOps);

GptOss* calls(Trial& r) { return dynamic_cast<GptOss*>(&r.ops()); }
bool has_calls(const Backend& b) { return dynamic_cast<GptOss*>(b.ops) != nullptr; }

struct Shape {
  int64_t tokens, heads, dim;
};
const Shape kShapes[] = {{1, 1, 1}, {7, 3, 5}, {65, 4, 16}, {200, 6, 33}};

TEST_P(GptOssOps, SinksTakeTheirShare) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no attention sinks";
  for (DType type : kTypes)
    for (const Shape& s : kShapes)
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} tokens {}x{}", label(type), s.tokens, s.heads, s.dim));
        check_op(GetParam(),
                 [&](Trial& r) {
                   const std::vector<float> sinks(static_cast<size_t>(s.heads), 0.7f);
                   AttentionSinks a;
                   a.out = r.inout("out", s.tokens, s.heads * s.dim, type, 1);
                   a.lse = r.inout_floats("lse", s.heads * s.tokens, 2, 3);
                   a.sinks = r.floats(sinks);
                   a.heads = s.heads;
                   calls(r)->attention_sinks(a);
                   AttentionSinksGrad g;
                   g.out = r.input(s.tokens, s.heads * s.dim, type, 3);
                   g.dout = r.input(s.tokens, s.heads * s.dim, type, 4);
                   g.lse = r.floats(std::vector<float>(static_cast<size_t>(s.heads * s.tokens), 1.5f));
                   g.sinks = a.sinks;
                   g.heads = s.heads;
                   g.accumulate = accumulate;
                   g.dsinks = accumulate ? r.inout_floats("dsinks", s.heads, 5) : r.output_floats("dsinks", s.heads);
                   calls(r)->attention_sinks_grad(g);
                 },
                 {1e-5, 2e-5});
      }
}

// One key whose score is s: what of its value is left is e^s/(e^s + e^sink), whatever the magnitudes.
TEST_P(GptOssOps, FarSinksLeaveAllOrNothing) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no attention sinks";
  Trial r(GetParam());
  const std::vector<float> lse{2.0f, 2.0f, 2.0f, -90.0f}, sinks{2.0f, -200.0f, 200.0f, -89.0f};
  AttentionSinks a;
  a.out = r.inout("out", 1, 4, DType::kF32, 1);
  const std::vector<double> before = r.read(a.out);
  a.lse = const_cast<float*>(r.floats(lse));
  a.sinks = r.floats(sinks);
  a.heads = 4;
  calls(r)->attention_sinks(a);
  const std::vector<double> after = r.read(a.out);
  for (size_t h = 0; h < 4; ++h) {
    const double part = 1 / (1 + std::exp(static_cast<double>(sinks[h]) - static_cast<double>(lse[h])));
    EXPECT_NEAR(after[h], part * before[h], 1e-5 * std::abs(before[h])) << h;
  }
}

TEST_P(GptOssOps, GatesStayWithinTheirBounds) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no clamped gates";
  for (DType type : kTypes)
    for (const int64_t width : {1, 5, 33, 128})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("{} width {}", label(type), width));
        check_op(GetParam(),
                 [&](Trial& r) {
                   ClampedGlu g;
                   g.x = r.input(7, 2 * width, type, 1, 4);
                   g.y = r.output("y", 7, width, type);
                   g.alpha = 1.702f, g.limit = 3.5f;
                   calls(r)->clamped_glu(g);
                   ClampedGluGrad d;
                   d.dx = in_place ? r.inout("dx", 7, 2 * width, type, 1, 4) : r.output("dx", 7, 2 * width, type);
                   d.x = in_place ? ConstMat(d.dx) : g.x;
                   d.dy = r.input(7, width, type, 2);
                   d.alpha = g.alpha, d.limit = g.limit;
                   calls(r)->clamped_glu_grad(d);
                 },
                 {1e-5, 1e-5});
      }
}

TEST_P(GptOssOps, GateGradientIsTheSlope) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no clamped gates";
  constexpr int64_t kWidth = 6;
  // Inside, outside either bound, far below: a gate has no lower one.
  std::vector<double> x{0.3, -1.2, 2.6, -9.0, 1.0, 0.0, 0.4, -2.6, 2.9, 1.1, -0.5, 0.0};
  const std::vector<double> weight{0.5, -1.5, 2.0, 1.0, 0.25, -1.0};
  const auto run = [&](bool gradient) {
    Trial r(GetParam());
    ClampedGluGrad d;
    d.x = r.values(x, 1, 2 * kWidth, DType::kF32);
    d.dy = r.values(weight, 1, kWidth, DType::kF32);
    d.dx = r.output("dx", 1, 2 * kWidth, DType::kF32);
    d.alpha = 1.702f, d.limit = 2.5f;
    if (gradient) {
      calls(r)->clamped_glu_grad(d);
      return r.read(d.dx);
    }
    ClampedGlu g;
    g.x = d.x, g.y = r.output("y", 1, kWidth, DType::kF32);
    g.alpha = d.alpha, g.limit = d.limit;
    calls(r)->clamped_glu(g);
    return r.read(g.y);
  };
  const std::vector<double> got = run(true);
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    double sum[2] = {};
    for (const int side : {0, 1}) {
      x[i] = at + (side ? 0.01 : -0.01);
      const std::vector<double> y = run(false);
      for (size_t j = 0; j < y.size(); ++j) sum[side] += weight[j] * y[j];
    }
    x[i] = at;
    EXPECT_NEAR(got[i], (sum[1] - sum[0]) / 0.02, 2e-3) << i;
  }
}

TEST_P(GptOssOps, EachExpertsRowsGetItsBias) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no experts' biases";
  // An expert without rows at the beginning, between and at the end.
  for (const std::vector<int32_t>& first : {std::vector<int32_t>{0, 0, 3, 3, 10, 10}, {0, 1}, {0, 40, 41, 300}})
    for (DType type : kTypes)
      for (const int64_t width : {1, 19, 64})
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} rows, width {}", label(type), first.back(), width));
          const auto experts = static_cast<int64_t>(first.size()) - 1;
          check_op(GetParam(),
                   [&](Trial& r) {
                     ExpertBias b;
                     b.y = r.inout("y", first.back(), width, type, 1);
                     b.bias = r.input(1, experts * width, type, 2);
                     b.first = r.ints(first);
                     b.experts = experts;
                     calls(r)->expert_bias(b);
                     ExpertBiasGrad g;
                     g.dy = r.input(first.back(), width, type, 3);
                     g.first = b.first, g.experts = experts, g.accumulate = accumulate;
                     g.dbias =
                         accumulate ? r.inout_floats("db", experts * width, 4) : r.output_floats("db", experts * width);
                     calls(r)->expert_bias_grad(g);
                   },
                   {1e-5, 2e-5});
        }
}

// Through the cache as over the documents themselves.
TEST_P(GptOssOps, CachedSinksAreThoseOfThePackedPass) {
  if (!has_calls(GetParam())) GTEST_SKIP() << GetParam().name << " has no attention sinks";
  constexpr int64_t kPage = 4, kDim = 8, kHeads = 6, kKv = 2;
  for (DType type : kTypes)
    for (const int64_t window : {0, 5})
      for (const int64_t queries : {1, 3, 11}) {
        SCOPED_TRACE(fmt::format("{} window {} queries {}", label(type), window, queries));
        check_op(GetParam(),
                 [&](Trial& r) {
                   CachedSinks c;
                   CachedAttention& a = c.of;
                   a.q = r.input(2 * queries, kHeads * kDim, type, 1);
                   a.out = r.output("out", 2 * queries, kHeads * kDim, type);
                   a.k_cache = r.inout_bytes("k", 8 * kKv * kPage * kDim, type, 2);
                   a.v_cache = r.inout_bytes("v", 8 * kKv * kPage * kDim, type, 3);
                   const auto n = static_cast<int32_t>(queries);
                   a.cu_q = r.ints({0, n, 2 * n});
                   a.context = r.ints({n, 13});
                   a.tables = r.ints({7, 2, 5, 0, 6, 1, 3, 4});
                   a.requests = 2, a.max_pages = 4, a.page = kPage;
                   a.heads = kHeads, a.kv_heads = kKv, a.head_dim = kDim, a.window = window;
                   a.scale = 0.35f;
                   c.sinks = r.floats({0.5f, -1.0f, 2.0f, 0.0f, 30.0f, -30.0f});
                   calls(r)->cached_sinks(c);
                 },
                 {1e-4, type == DType::kF32 ? 2e-5 : 2e-2});
      }
}

}  // namespace
}  // namespace mxt::kernels::test
