#include "autotune/question.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"

namespace mxt::autotune {

Parts Question::timed(size_t i) {
  const double begin = Deadline::now();
  Parts p = sample_(i);
  longest_[i] = std::max(longest_[i], (Deadline::now() - begin) * 1e6);
  return p;
}

bool Question::warm() {
  for (size_t i = 0; i < names_.size(); ++i) {
    try {
      timed(i);
    } catch (const Error& e) {
      log::debug("probe: {}: {}", names_[i], e.what());
      out_[i] = true;
    }
  }
  return !out_[0];
}

void Question::round() {
  const size_t n = names_.size();
  for (size_t k = 0; k < n; ++k) {
    const size_t i = rounds_ % 2 == 0 ? k : n - 1 - k;
    if (!out_[i]) samples_[i].push_back(timed(i));
  }
  ++rounds_;
}

double Question::cost() const { return std::accumulate(longest_.begin(), longest_.end(), 0.0); }

void Question::forget_if_short() {
  if (rounds_ >= kLeastRounds) return;
  for (auto& s : samples_) s.clear();
  rounds_ = 0;
}

Samples Question::totals() const {
  Samples all(names_.size());
  for (size_t i = 0; i < names_.size(); ++i)
    for (const Parts& p : samples_[i]) all[i].push_back(std::accumulate(p.begin(), p.end(), 0.0));
  return all;
}

std::vector<kernels::Candidate> Question::summary() const {
  const Samples s = totals();
  const auto quiet = quiet_rounds(s);
  std::vector<kernels::Candidate> all;
  for (size_t i = 0; i < names_.size(); ++i) all.push_back(summarise(names_[i], s[i], quiet));
  return all;
}

std::vector<kernels::Candidate> Question::summary(size_t part) const {
  const auto quiet = quiet_rounds(totals());
  std::vector<kernels::Candidate> all;
  for (size_t i = 0; i < names_.size(); ++i) {
    std::vector<double> v;
    for (const Parts& p : samples_[i]) v.push_back(p[part]);
    all.push_back(summarise(names_[i], v, quiet));
  }
  return all;
}

void ask(Question& q, size_t rounds, const Deadline& deadline, bool enumerate) {
  if (!q.warm()) return;
  const size_t most = (enumerate ? 3 : 1) * rounds;
  while (deadline.allows(q.cost()) && (q.rounds() < most || (q.rounds() < 3 * most && q.open()))) q.round();
  q.forget_if_short();
}

}  // namespace mxt::autotune
