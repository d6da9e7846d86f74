// Gated DeltaNet's derivatives against central differences.
#include <cmath>

#include "base/philox.h"
#include "kernels/harness.h"
#include "kernels/reference/reference.h"

namespace mxt::kernels::test {
namespace {

using Doubles = std::vector<double>;

Doubles normals(int64_t n, uint64_t seed) {
  Philox g(seed, 0);
  Doubles out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(g.normal()));
  return out;
}
Mat mat(Doubles& v, int64_t rows) {
  const auto cols = static_cast<int64_t>(v.size()) / rows;
  return {v.data(), rows, cols, cols, DType::kF64};
}
double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Doubles doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

TEST(Derivative, CausalConvolution) {
  constexpr int64_t kTokens = 9, kChannels = 2, kWidth = 4;
  const std::vector<int32_t> cu{0, 2, 9};
  Doubles x = normals(kTokens * kChannels, 1), w = normals(kChannels * kWidth, 2), dy = normals(x.size(), 3),
          y(x.size()), dx(x.size());
  std::vector<float> dw(w.size());
  auto loss = [&] {
    reference::causal_conv({mat(x, kTokens), mat(w, kChannels), mat(y, kTokens), cu.data(), 2, 0, {}});
    return dot(y, dy);
  };
  reference::causal_conv_grad(
      {mat(x, kTokens), mat(w, kChannels), mat(dy, kTokens), mat(dx, kTokens), dw.data(), false, cu.data(), 2});
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dw", w, doubles(dw), loss);
}

TEST(Derivative, GatedDeltaRule) {
  const DeltaShape s{2, 4, 3, 2};
  constexpr int64_t kTokens = 8;
  const std::vector<int32_t> cu{0, 3, 8};
  Doubles qkv = normals(kTokens * s.width(), 1), ba = normals(kTokens * 2 * s.value_heads, 2),
          a_log = normals(s.value_heads, 3), dt = normals(s.value_heads, 4),
          dout = normals(kTokens * s.value_heads * s.value_dim, 5), out(dout.size()), dqkv(qkv.size()), dba(ba.size());
  std::vector<float> da_log(4), ddt(4);
  auto loss = [&] {
    reference::gated_delta(
        {mat(qkv, kTokens), mat(ba, kTokens), mat(a_log, 1), mat(dt, 1), mat(out, kTokens), s, cu.data(), 2, 0, {}});
    return dot(out, dout);
  };
  GatedDeltaGrad g{mat(qkv, kTokens),
                   mat(ba, kTokens),
                   mat(a_log, 1),
                   mat(dt, 1),
                   mat(dout, kTokens),
                   mat(dqkv, kTokens),
                   mat(dba, kTokens),
                   da_log.data(),
                   ddt.data(),
                   false,
                   s,
                   cu.data(),
                   2};
  reference::gated_delta_grad(g);
  expect_gradient("dqkv", qkv, dqkv, loss);
  expect_gradient("dba", ba, dba, loss);
  expect_gradient("da_log", a_log, doubles(da_log), loss);
  expect_gradient("ddt_bias", dt, doubles(ddt), loss);
}

TEST(Derivative, NormAndGates) {
  constexpr int64_t kTokens = 3, kDim = 4, kHeads = 2;
  Doubles x = normals(kTokens * kHeads * kDim, 1), gate = normals(x.size(), 2), w = normals(kDim, 3),
          dy = normals(x.size(), 4), y(x.size()), dx(x.size()), dgate(x.size());
  std::vector<float> rstd(kTokens * kHeads), dw(kDim);
  {
    auto loss = [&] {
      reference::gated_norm({mat(x, kTokens), mat(gate, kTokens), mat(w, 1), mat(y, kTokens), rstd.data(), 1e-6f});
      return dot(y, dy);
    };
    loss();
    reference::gated_norm_grad({mat(x, kTokens), mat(gate, kTokens), mat(w, 1), mat(dy, kTokens), rstd.data(),
                                mat(dx, kTokens), mat(dgate, kTokens), dw.data(), false});
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dgate", gate, dgate, loss);
    expect_gradient("dw", w, doubles(dw), loss);
  }
  for (const bool one : {false, true}) {
    Doubles g = one ? normals(kTokens, 5) : gate, dg(g.size());
    auto loss = [&] {
      reference::sigmoid_gate({mat(x, kTokens), mat(g, kTokens), mat(y, kTokens)});
      return dot(y, dy);
    };
    reference::sigmoid_gate_grad(
        {mat(x, kTokens), mat(g, kTokens), mat(dy, kTokens), mat(dx, kTokens), mat(dg, kTokens)});
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dgate", g, dg, loss);
  }
}

}  // namespace
}  // namespace mxt::kernels::test
