#include "infer/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"

namespace mxt::infer {
namespace {

struct Better {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

// The largest value and its first place: in lanes, which compilers turn into vector instructions where a search for the
// place is a chain.
float largest(std::span<const float> x) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  float top = *std::max_element(lanes, lanes + kLanes);
  for (; i < x.size(); ++i) top = std::max(top, x[i]);
  return top;
}
int32_t place_of(std::span<const float> x, float value) {
  constexpr size_t kBlock = 64;
  size_t i = 0;
  for (; i + kBlock <= x.size(); i += kBlock) {
    int found = 0;
    for (size_t j = 0; j < kBlock; ++j) found |= x[i + j] == value;
    if (found) break;
  }
  while (i < x.size() && x[i] != value) ++i;
  return i < x.size() ? static_cast<int32_t>(i) : 0;
}

float bounded(double x) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -kMost, kMost));
}

}  // namespace

bool all_finite(std::span<const float> logits) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t broken = 0;
  for (const float x : logits) broken |= (std::bit_cast<uint32_t>(x) & kExponent) == kExponent;
  return broken == 0;
}

bool nothing_left(std::span<const float> logits) { return largest(logits) == -std::numeric_limits<float>::infinity(); }

int32_t most_likely(std::span<const float> logits) { return place_of(logits, largest(logits)); }

double log_sum_exp(std::span<const float> logits) {
  const float top = largest(logits);
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(top));
  return static_cast<double>(top) + std::log(sum);
}

std::vector<int32_t> most_likely(std::span<const float> logits, int64_t count) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto n =
      static_cast<ptrdiff_t>(std::min<size_t>(static_cast<size_t>(std::max<int64_t>(count, 0)), order.size()));
  std::partial_sort(order.begin(), order.begin() + n, order.end(), Better{logits});
  order.resize(static_cast<size_t>(n));
  return order;
}

void adjust(std::span<float> logits, const Sampling& s, const Seen& seen) {
  for (const auto& [id, times] : seen) {
    float& x = logits[static_cast<size_t>(id)];
    const double r = s.repetition_penalty;
    if (r != 1) x = bounded(x > 0 ? static_cast<double>(x) / r : static_cast<double>(x) * r);
    if (times > 0) x -= static_cast<float>(s.presence_penalty + s.frequency_penalty * times);
  }
  for (const auto& [id, bias] : s.logit_bias) logits[static_cast<size_t>(id)] += bias;
}

void allow_only(std::span<float> logits, std::span<const uint64_t> allowed) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (i / 64 >= allowed.size() || !((allowed[i / 64] >> (i % 64)) & 1))
      logits[i] = -std::numeric_limits<float>::infinity();
}

std::array<uint32_t, 2> uniform_bits(const Sampling& s, uint64_t n) {
  const auto r = philox4x32(s.seed, 0x73616d706cu, n);
  return {r[0], r[1]};
}

int32_t sample(std::span<const float> logits, const Sampling& s, uint64_t n) {
  if (s.temperature <= 0) return most_likely(logits);
  const double top = largest(logits);
  auto weight = [&](int32_t id) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - top) / s.temperature);
  };
  const auto r = uniform_bits(s, n);
  const double uniform = static_cast<double>(r[0]) * 0x1p-32 + static_cast<double>(r[1]) * 0x1p-64;

  const size_t vocab = logits.size();
  size_t most = s.top_k > 0 ? std::min(vocab, static_cast<size_t>(s.top_k)) : vocab;
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> p;
  double total = 0;
  if (most == vocab) {
    // The mass of everything is needed anyway; without further filters it is also all that is needed.
    p.resize(vocab);
    for (size_t i = 0; i < vocab; ++i) total += p[i] = weight(static_cast<int32_t>(i));
    if (s.top_p >= 1 && s.min_p <= 0) {
      double u = uniform * total;
      for (size_t i = 0; i < vocab; ++i)
        if ((u -= p[i]) < 0) return static_cast<int32_t>(i);
      return most_likely(logits);
    }
  }
  // The best ones in order, first a few, then more where the filters keep so many.
  size_t sorted = 0;
  for (size_t want = std::min<size_t>(64, most);; want = std::min(most, want * 8)) {
    std::partial_sort(order.begin() + static_cast<ptrdiff_t>(sorted), order.begin() + static_cast<ptrdiff_t>(want),
                      order.end(), Better{logits});
    sorted = want;
    p.resize(sorted);
    double sum = 0;
    for (size_t i = 0; i < sorted; ++i) sum += p[i] = weight(order[i]);
    if (sorted == most) {
      if (most < vocab) total = sum;
      break;
    }
    if (most == vocab ? sum >= s.top_p * total || p.back() < s.min_p : s.top_p >= 1 && p.back() < s.min_p) break;
  }
  if (s.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < p.size() && sum < s.top_p * total) sum += p[i++];
    p.resize(std::max<size_t>(i, 1));
  }
  if (s.min_p > 0) {
    size_t i = 1;
    while (i < p.size() && p[i] >= s.min_p * p[0]) ++i;
    p.resize(i);
  }
  double u = uniform * std::accumulate(p.begin(), p.end(), 0.0);
  for (size_t i = 0; i < p.size(); ++i)
    if ((u -= p[i]) < 0) return order[i];
  while (p.size() > 1 && p.back() <= 0) p.pop_back();  // sums round: what is impossible stays so
  return order[p.size() - 1];
}

}  // namespace mxt::infer
