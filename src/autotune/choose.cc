#include "autotune/choose.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mxt::autotune {
namespace {

double at(const std::vector<double>& sorted, double part) {
  const double x = part * static_cast<double>(sorted.size() - 1);
  const auto i = static_cast<size_t>(x);
  const double next = sorted[std::min(i + 1, sorted.size() - 1)];
  return sorted[i] + (x - std::floor(x)) * (next - sorted[i]);
}

size_t rounds_of(const Samples& samples) {
  for (const auto& s : samples)
    if (!s.empty()) return s.size();
  return 0;
}

// Candidates other than the default that beat it.
bool beats(const Gain& g, double margin) { return g.value > std::max(margin, g.error); }

}  // namespace

std::vector<size_t> quiet_rounds(const Samples& samples) {
  const size_t n = rounds_of(samples);
  std::vector<double> disturbance(n, 0);
  for (const auto& s : samples) {
    if (s.empty()) continue;
    const double least = *std::min_element(s.begin(), s.end());
    for (size_t r = 0; r < n; ++r) disturbance[r] += s[r] / least;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return disturbance[a] < disturbance[b]; });
  order.resize((n + 1) / 2);
  std::sort(order.begin(), order.end());
  return order;
}

kernels::Candidate summarise(std::string algorithm, const std::vector<double>& samples,
                             const std::vector<size_t>& rounds) {
  kernels::Candidate c{std::move(algorithm), 0, 0};
  if (samples.empty() || rounds.empty()) return c;
  std::vector<double> v;
  for (const size_t r : rounds) v.push_back(samples[r]);
  std::sort(v.begin(), v.end());
  c.median_us = at(v, 0.5);
  c.spread_us = at(v, 0.75) - at(v, 0.25);
  return c;
}

Gain gain(const Samples& samples, size_t base, size_t c) {
  if (samples[base].empty() || samples[c].empty()) return {-1, 0};
  std::vector<double> ratio;
  for (const size_t r : quiet_rounds(samples)) ratio.push_back(samples[base][r] / samples[c][r]);
  std::sort(ratio.begin(), ratio.end());
  return {at(ratio, 0.5) - 1,
          1.57 * (at(ratio, 0.75) - at(ratio, 0.25)) / std::sqrt(static_cast<double>(ratio.size()))};
}

size_t choose(const std::vector<std::string>& names, const Samples& samples, double margin) {
  if (rounds_of(samples) < kLeastRounds || samples[0].empty()) return 0;
  size_t fastest = 0;
  for (size_t c = 1; c < names.size(); ++c)
    if (beats(gain(samples, 0, c), margin) && (fastest == 0 || gain(samples, fastest, c).value > 0)) fastest = c;
  if (fastest == 0) return 0;
  size_t choice = fastest;
  for (size_t c = 1; c < names.size(); ++c)
    if (names[c] < names[choice] && beats(gain(samples, 0, c), margin) && !beats(gain(samples, c, fastest), margin))
      choice = c;
  return choice;
}

bool undecided(const Samples& samples, double margin) {
  if (samples[0].empty()) return false;
  for (size_t c = 1; c < samples.size(); ++c) {
    if (samples[c].empty()) continue;
    const Gain g = gain(samples, 0, c);
    if (std::abs(g.value - margin) < std::max(margin / 4, g.error)) return true;
  }
  return false;
}

bool within_noise(const kernels::Candidate& c, const kernels::Candidate& faster, bool host) {
  const double noise = (host ? kHostMargin : kNoise) * faster.median_us;
  return c.median_us > 0 && c.median_us - faster.median_us <= std::max({noise, c.spread_us, faster.spread_us});
}

}  // namespace mxt::autotune
