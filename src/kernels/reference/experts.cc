#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"
#include "kernels/routing.h"

namespace mxt::kernels::reference {

void route(const Route& r) {
  const int64_t tokens = r.logits.rows, experts = r.logits.cols, k = r.weights.cols;
  std::vector<float> logits(static_cast<size_t>(experts));
  std::vector<double> p(static_cast<size_t>(experts));
  for (int64_t t = 0; t < tokens; ++t) {
    double largest = -INFINITY, sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      logits[static_cast<size_t>(e)] = static_cast<float>(get(r.logits, t, e));
      largest = std::max(largest, get(r.logits, t, e));
    }
    for (int64_t e = 0; e < experts; ++e) sum += p[static_cast<size_t>(e)] = std::exp(get(r.logits, t, e) - largest);
    for (int64_t e = 0; e < experts; ++e) set(r.probabilities, t, e, p[static_cast<size_t>(e)] /= sum);
    int32_t* chosen = r.expert + t * k;
    top_k(logits.data(), experts, k, chosen);
    double whole = 0;
    for (int64_t j = 0; j < k; ++j) whole += p[static_cast<size_t>(chosen[j])];
    for (int64_t j = 0; j < k; ++j)
      set(r.weights, t, j, p[static_cast<size_t>(chosen[j])] / (r.renormalize ? whole : 1.0));
  }
  sort_routed_rows(r.expert, tokens * k, experts, r.row, r.slot, r.first);
}

// w_j = p_j (/ s, s = Σ p of the chosen): dp_j = dw_j, or (dw_j − Σ_i w_i·dw_i) / s. dlogit_e = p_e·(dp_e − Σ p·dp).
void route_grad(const RouteGrad& r) {
  const int64_t tokens = r.dlogits.rows, experts = r.dlogits.cols, k = r.dweights.p ? r.dweights.cols : 0;
  std::vector<double> dp(static_cast<size_t>(experts));
  int64_t document = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    while (document < r.balance.rows && t >= r.runs[document + 1]) ++document;
    for (int64_t e = 0; e < experts; ++e)
      dp[static_cast<size_t>(e)] = document < r.balance.rows ? get(r.balance, document, e) : 0.0;
    double whole = 1, mean = 0;
    if (r.renormalize && k > 0) {
      whole = 0;
      for (int64_t j = 0; j < k; ++j) whole += get(r.probabilities, t, r.expert[t * k + j]);
      for (int64_t j = 0; j < k; ++j)
        mean += get(r.probabilities, t, r.expert[t * k + j]) / whole * get(r.dweights, t, j);
    }
    for (int64_t j = 0; j < k; ++j)
      dp[static_cast<size_t>(r.expert[t * k + j])] += (get(r.dweights, t, j) - mean) / whole;
    double sum = 0;
    for (int64_t e = 0; e < experts; ++e) sum += get(r.probabilities, t, e) * dp[static_cast<size_t>(e)];
    for (int64_t e = 0; e < experts; ++e)
      set(r.dlogits, t, e, get(r.probabilities, t, e) * (dp[static_cast<size_t>(e)] - sum));
  }
}

void expert_gather(const ExpertGather& g) {
  for (int64_t r = 0; r < g.y.rows; ++r) {
    const int64_t t = g.slot[r] / g.k, j = g.slot[r] % g.k;
    const double w = g.weights.p ? get(g.weights, t, j) : 1.0;
    for (int64_t c = 0; c < g.y.cols; ++c) set(g.y, r, c, w * get(g.x, t, c));
  }
}

void expert_sum(const ExpertSum& s) {
  for (int64_t t = 0; t < s.y.rows; ++t)
    for (int64_t c = 0; c < s.y.cols; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < s.k; ++j)
        sum += (s.weights.p ? get(s.weights, t, j) : 1.0) * get(s.x, s.row[t * s.k + j], c);
      set(s.y, t, c, sum + (s.add.p ? get(s.add, t, c) : 0.0));
    }
}

void expert_dots(const ExpertDots& d) {
  const int64_t k = d.dweights.cols;
  for (int64_t t = 0; t < d.dy.rows; ++t)
    for (int64_t j = 0; j < k; ++j) {
      double sum = 0;
      for (int64_t c = 0; c < d.dy.cols; ++c) sum += get(d.dy, t, c) * get(d.x, d.row[t * k + j], c);
      set(d.dweights, t, j, sum);
    }
}

void grouped_gemm(const GroupedGemm& g) {
  for (int64_t e = 0; e < g.experts; ++e) gemm(gemm_of_expert(g, e));
}

void route_load(const RouteLoad& l) {
  for (int64_t d = 0; d < l.count.rows; ++d)
    for (int64_t e = 0; e < l.count.cols; ++e) {
      double count = 0, mass = 0;
      for (int64_t t = l.runs[d]; t < l.runs[d + 1]; ++t) {
        mass += get(l.probabilities, t, e);
        for (int64_t j = 0; j < l.k; ++j) count += l.expert[t * l.k + j] == e;
      }
      set(l.count, d, e, count + (l.accumulate ? get(ConstMat(l.count), d, e) : 0.0));
      set(l.mass, d, e, mass + (l.accumulate ? get(ConstMat(l.mass), d, e) : 0.0));
    }
}

void balance_loss(const BalanceLoss& b) {
  const auto experts = static_cast<double>(b.count.cols);
  for (int64_t d = 0; d < b.count.rows; ++d) {
    const double n = static_cast<double>(b.layers) * static_cast<double>(b.runs[d + 1] - b.runs[d]);
    double loss = 0;
    for (int64_t e = 0; e < b.count.cols; ++e) {
      const double f = n > 0 ? get(b.count, d, e) / n : 0.0;
      loss += n > 0 ? experts * f * get(b.mass, d, e) / n : 0.0;
      set(b.balance, d, e,
          n > 0 ? static_cast<double>(b.coefficient) * static_cast<double>(*b.scale) * experts * f / n : 0.0);
    }
    set(b.loss, d, 0, loss);
  }
}

}  // namespace mxt::kernels::reference
