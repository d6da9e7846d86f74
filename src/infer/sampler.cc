#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace mxt::infer {

double log_sum_exp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(top));
  return static_cast<double>(top) + std::log(sum);
}

int32_t sample(std::span<const float> logits, const Sampling& s, uint64_t n) {
  if (s.temperature <= 0) return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  size_t keep = order.size();
  if (s.top_k > 0 && static_cast<size_t>(s.top_k) < keep) {
    keep = static_cast<size_t>(s.top_k);
    std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(), better);
    order.resize(keep);
  }
  std::sort(order.begin(), order.end(), better);
  std::vector<double> p(order.size());
  const double top = logits[static_cast<size_t>(order[0])];
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) total += p[i] = std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - top) / s.temperature);
  if (s.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < p.size() && sum < s.top_p * total) sum += p[i++];
    p.resize(std::max<size_t>(i, 1));
    total = std::accumulate(p.begin(), p.end(), 0.0);
  }
  if (s.min_p > 0) {
    size_t i = 1;
    while (i < p.size() && p[i] >= s.min_p * p[0]) ++i;
    p.resize(i);
    total = std::accumulate(p.begin(), p.end(), 0.0);
  }
  const auto r = philox4x32(s.seed, 0x73616d706cu, n);
  double u = (static_cast<double>(r[0]) * 0x1p-32 + static_cast<double>(r[1]) * 0x1p-64) * total;
  for (size_t i = 0; i < p.size(); ++i) {
    u -= p[i];
    if (u < 0) return order[i];
  }
  return order[p.size() - 1];
}

}  // namespace mxt::infer
