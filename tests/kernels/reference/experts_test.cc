// Routing by hand, and the derivatives of a mixture of experts against central differences.
#include <cmath>

#include "base/philox.h"
#include "kernels/harness.h"
#include "kernels/reference/reference.h"
#include "kernels/routing.h"

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

TEST(Routing, EqualLogitsGoToTheLowerIndex) {
  const std::vector<float> x{1, 3, 3, NAN, 3, 2};
  std::vector<int32_t> chosen(5);
  top_k(x.data(), 6, 5, chosen.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 2, 4, 5, 0}));
  const std::vector<float> none(4, NAN);  // all the same: distinct all the same
  top_k(none.data(), 4, 3, chosen.data());
  EXPECT_EQ((std::vector<int32_t>(chosen.begin(), chosen.begin() + 3)), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Routing, RowsAreSortedByExpertThenToken) {
  const std::vector<int32_t> expert{2, 0, 0, 3, 2, 0};  // three tokens, two each
  std::vector<int32_t> row(6), slot(6), first(6);
  sort_routed_rows(expert.data(), 6, 5, row.data(), slot.data(), first.data());
  EXPECT_EQ(slot, (std::vector<int32_t>{1, 2, 5, 0, 4, 3}));
  EXPECT_EQ(row, (std::vector<int32_t>{3, 0, 1, 5, 4, 2}));
  EXPECT_EQ(first, (std::vector<int32_t>{0, 3, 3, 5, 6, 6}));
}

// y = Σ_j w_j · W_e x with the balance loss beside it, through every kernel of a layer.
TEST(Derivative, MixtureOfExperts) {
  constexpr int64_t kTokens = 5, kExperts = 4, kTop = 3, kIn = 3, kOut = 2, kRows = kTokens * kTop;
  const std::vector<int32_t> cu{0, 2, 5};
  for (bool renormalize : {false, true}) {
    Doubles logits = normals(kTokens * kExperts, 1), x = normals(kTokens * kIn, 2),
            w = normals(kExperts * kOut * kIn, 3);
    const Doubles dy = normals(kTokens * kOut, 4);
    Doubles weights(kTokens * kTop), p(logits.size()), routed(kRows * kIn), out(kRows * kOut), y(kTokens * kOut);
    Doubles count(2 * kExperts), mass(2 * kExperts), balance(2 * kExperts);
    std::vector<int32_t> expert(kRows), row(kRows), slot(kRows), first(kExperts + 1);
    Doubles aux(2);
    constexpr double kScale = 0.5;
    auto product = [&](Grouped kind, Mat a, Mat b, Mat c) {
      reference::grouped_gemm({kind, a, b, c, first.data(), kExperts});
    };
    auto loss = [&] {
      Route r;
      r.logits = mat(logits, kTokens), r.renormalize = renormalize;
      r.weights = mat(weights, kTokens), r.probabilities = mat(p, kTokens);
      r.expert = expert.data(), r.row = row.data(), r.slot = slot.data(), r.first = first.data();
      reference::route(r);
      reference::expert_gather({mat(x, kTokens), slot.data(), kTop, {}, mat(routed, kRows)});
      product(Grouped::kForward, mat(routed, kRows), mat(w, kExperts * kOut), mat(out, kRows));
      reference::expert_sum({mat(out, kRows), row.data(), kTop, mat(weights, kTokens), {}, mat(y, kTokens)});
      reference::route_load({expert.data(), kTop, mat(p, kTokens), cu.data(), mat(count, 2), mat(mass, 2)});
      const float scale = 0.25f;
      reference::balance_loss({mat(count, 2), mat(mass, 2), cu.data(), 1, 2, &scale, mat(aux, 2), mat(balance, 2)});
      double sum = dot(y, dy);  // the loss's own double, not its float
      for (int64_t d = 0; d < 2; ++d) {
        const double n = cu[static_cast<size_t>(d) + 1] - cu[static_cast<size_t>(d)];
        for (int64_t e = 0; e < kExperts; ++e) {
          const auto i = static_cast<size_t>(d * kExperts + e);
          sum += kScale * kExperts * count[i] / n * mass[i] / n;
        }
      }
      return sum;
    };
    loss();
    for (int64_t d = 0; d < 2; ++d) {
      double whole = 0;
      const double n = cu[static_cast<size_t>(d) + 1] - cu[static_cast<size_t>(d)];
      for (int64_t e = 0; e < kExperts; ++e) {
        const auto i = static_cast<size_t>(d * kExperts + e);
        whole += kExperts * count[i] / n * mass[i] / n;
      }
      EXPECT_NEAR(aux[static_cast<size_t>(d)], whole, 1e-6 * whole);
    }
    Doubles dweights(weights.size()), drouted(routed.size()), dout(out.size()), dx(x.size()), dlogits(logits.size()),
        dw(w.size());
    Doubles upstream = dy;
    reference::expert_dots({mat(upstream, kTokens), mat(out, kRows), row.data(), mat(dweights, kTokens)});
    reference::expert_gather({mat(upstream, kTokens), slot.data(), kTop, mat(weights, kTokens), mat(dout, kRows)});
    product(Grouped::kWeight, mat(dout, kRows), mat(routed, kRows), mat(dw, kExperts * kOut));
    product(Grouped::kInput, mat(dout, kRows), mat(w, kExperts * kOut), mat(drouted, kRows));
    reference::expert_sum({mat(drouted, kRows), row.data(), kTop, {}, {}, mat(dx, kTokens)});
    RouteGrad g;
    g.probabilities = mat(p, kTokens), g.dweights = mat(dweights, kTokens), g.expert = expert.data();
    g.renormalize = renormalize, g.dlogits = mat(dlogits, kTokens);
    g.balance = mat(balance, 2), g.runs = cu.data();
    reference::route_grad(g);
    expect_gradient("dx", x, dx, loss);
    expect_gradient("dw", w, dw, loss);
    expect_gradient("dlogits", logits, dlogits, loss);
  }
}

}  // namespace
}  // namespace mxt::kernels::test
