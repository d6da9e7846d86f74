#include "autotune/choose.h"

#include <algorithm>
#include <cmath>

namespace mxt::autotune {
namespace {

double at(const std::vector<double>& sorted, double part) {
  const double x = part * static_cast<double>(sorted.size() - 1);
  const auto i = static_cast<size_t>(x);
  const double next = sorted[std::min(i + 1, sorted.size() - 1)];
  return sorted[i] + (x - std::floor(x)) * (next - sorted[i]);
}

bool measured(const kernels::Candidate& c) { return c.median_us > 0; }

double margin(const kernels::Candidate& c, const kernels::Candidate& fastest) {
  return std::max({kNoise * fastest.median_us, c.spread_us, fastest.spread_us});
}

const kernels::Candidate* fastest_of(const std::vector<kernels::Candidate>& all) {
  const kernels::Candidate* best = nullptr;
  for (const auto& c : all)
    if (measured(c) && (!best || c.median_us < best->median_us || (c.median_us == best->median_us && c.algorithm < best->algorithm))) best = &c;
  return best;
}

}  // namespace

kernels::Candidate summarise(std::string algorithm, std::vector<double> samples) {
  kernels::Candidate c{std::move(algorithm), 0, 0};
  if (samples.empty()) return c;
  std::sort(samples.begin(), samples.end());
  c.median_us = at(samples, 0.5);
  c.spread_us = at(samples, 0.75) - at(samples, 0.25);
  return c;
}

bool within_noise(const kernels::Candidate& c, const kernels::Candidate& fastest) {
  return measured(c) && c.median_us - fastest.median_us <= margin(c, fastest);
}

size_t choose(const std::vector<kernels::Candidate>& candidates, double count, double pass_us) {
  const kernels::Candidate* fastest = fastest_of(candidates);
  if (!fastest || !measured(candidates[0]) || within_noise(candidates[0], *fastest)) return 0;
  if (pass_us > 0 && (candidates[0].median_us - fastest->median_us) * count < kFelt * pass_us) return 0;
  const kernels::Candidate* choice = fastest;
  for (const auto& c : candidates)
    if (within_noise(c, *fastest) && c.algorithm < choice->algorithm) choice = &c;
  return static_cast<size_t>(choice - candidates.data());
}

bool undecided(const std::vector<kernels::Candidate>& candidates, double count, double pass_us) {
  const kernels::Candidate* fastest = fastest_of(candidates);
  if (!fastest) return false;
  if (pass_us > 0 && measured(candidates[0]) && 2 * (candidates[0].median_us - fastest->median_us) * count < kFelt * pass_us) return false;
  for (const auto& c : candidates) {
    if (&c == fastest || !measured(c)) continue;
    const double past = (c.median_us - fastest->median_us - margin(c, *fastest)) / fastest->median_us;
    if (std::abs(past) < kNoise / 2) return true;
  }
  return false;
}

}  // namespace mxt::autotune
