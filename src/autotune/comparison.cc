#include "autotune/comparison.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"

namespace mxt::autotune {
namespace {

double sum(const Parts& p) { return std::accumulate(p.begin(), p.end(), 0.0); }

}  // namespace

Parts Comparison::timed(size_t i) {
  const double begin = Deadline::now();
  Parts p = sample_(i);
  longest_[i] = std::max(longest_[i], (Deadline::now() - begin) * 1e6);
  return p;
}

bool Comparison::warm() {
  warm_.resize(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    try {
      warm_[i] = timed(i);
    } catch (const Error& e) {
      if (e.code() == Exit::kInterrupted) throw;
      log::debug("probe: {}: {}", names_[i], e.what());
      out_[i] = true;
    }
  }
  return !out_[0];
}

void Comparison::round() {
  const size_t n = names_.size();
  for (size_t k = 0; k < n; ++k) {
    const size_t i = rounds_ % 2 == 0 ? k : n - 1 - k;
    if (!out_[i]) samples_[i].push_back(timed(i));
  }
  ++rounds_;
}

void Comparison::give_up_hopeless() {
  if (rounds_ != 1) return;
  const double usual = std::max(sum(warm_[0]), sum(samples_[0][0]));
  for (size_t i = 1; i < names_.size(); ++i) {
    if (out_[i] || std::min(sum(warm_[i]), sum(samples_[i][0])) < kHopeless * usual) continue;
    given_up_[i] = samples_[i][0];
    samples_[i].clear();
    longest_[i] = 0;
    out_[i] = true;
  }
}

double Comparison::cost() const { return sum(longest_); }

void Comparison::forget_if_short(size_t least) {
  if (rounds_ >= least) return;
  for (auto& s : samples_) s.clear();
  rounds_ = 0;
}

Samples Comparison::totals() const {
  Samples all(names_.size());
  for (size_t i = 0; i < names_.size(); ++i)
    for (const Parts& p : samples_[i]) all[i].push_back(sum(p));
  return all;
}

kernels::Candidate Comparison::summarised(size_t i, const std::vector<double>& samples,
                                          const std::vector<size_t>& rounds, double given_up) const {
  if (samples.empty()) return {names_[i], given_up, 0};
  return summarise(names_[i], samples, rounds);
}

std::vector<kernels::Candidate> Comparison::summary() const {
  const Samples s = totals();
  const auto quiet = quiet_rounds(s);
  std::vector<kernels::Candidate> all;
  for (size_t i = 0; i < names_.size(); ++i) all.push_back(summarised(i, s[i], quiet, sum(given_up_[i])));
  return all;
}

std::vector<kernels::Candidate> Comparison::summary(size_t part) const {
  const auto quiet = quiet_rounds(totals());
  std::vector<kernels::Candidate> all;
  for (size_t i = 0; i < names_.size(); ++i) {
    std::vector<double> v;
    for (const Parts& p : samples_[i]) v.push_back(p[part]);
    all.push_back(summarised(i, v, quiet, given_up_[i].empty() ? 0 : given_up_[i][part]));
  }
  return all;
}

void ask(Comparison& q, size_t rounds, const Deadline& deadline, bool enumerate) {
  if (!q.warm()) return;
  const size_t most = (enumerate ? 3 : 1) * rounds;
  while (deadline.allows(q.cost()) && (q.rounds() < most || (q.rounds() < 3 * most && q.open()))) q.round();
  q.forget_if_short(std::min(rounds, kLeastRounds));
}

}  // namespace mxt::autotune
