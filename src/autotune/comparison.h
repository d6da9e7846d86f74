// One question of the probe: candidates that are timed round by round, one right after the other, so that a round
// compares them under the same conditions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autotune/choose.h"
#include "autotune/device_timer.h"

namespace mxt::autotune {

using Parts = std::vector<double>;  // µs of each call that one choice is for

class Comparison {
 public:
  // `sample(i)` measures candidate i; candidate 0 is the default; `margin`: see choose.h.
  Comparison(std::vector<std::string> names, double margin, std::function<Parts(size_t)> sample)
      : names_(std::move(names)),
        margin_(margin),
        sample_(std::move(sample)),
        samples_(names_.size()),
        given_up_(names_.size()),
        longest_(names_.size(), 0),
        out_(names_.size(), false) {}

  // The first run pays for pages, code and caches, and does not count. A candidate that throws is no candidate. →
  // whether the default runs.
  bool warm();
  // A round over all candidates; every other one backwards, so that none always follows the same.
  void round();
  // After the first round: times no more the candidates that it and the warm-up show to be hopeless (choose.h).
  void give_up_hopeless();
  size_t rounds() const { return rounds_; }
  // µs that a round has taken at most.
  double cost() const;
  // All or nothing: a question without enough rounds was not asked.
  void forget_if_short(size_t least = kLeastRounds);

  const std::vector<std::string>& names() const { return names_; }
  Samples totals() const;  // sums over the parts
  std::vector<kernels::Candidate> summary() const;
  std::vector<kernels::Candidate> summary(size_t part) const;  // over the rounds that are quiet for the totals
  size_t choice() const { return choose(names_, totals(), margin_); }
  bool open() const { return undecided(totals(), margin_); }

 private:
  Parts timed(size_t i);
  kernels::Candidate summarised(size_t i, const std::vector<double>& samples, const std::vector<size_t>& rounds,
                                double given_up) const;
  std::vector<std::string> names_;
  double margin_;
  std::function<Parts(size_t)> sample_;
  std::vector<std::vector<Parts>> samples_;
  std::vector<Parts> warm_, given_up_;  // given_up_: the one sample of those that are timed no more
  std::vector<double> longest_;
  std::vector<bool> out_;
  size_t rounds_ = 0;
};

// Asks alone: warm-up, `rounds` rounds, and while the answer is undecided up to three times as many. Ends at the
// deadline. With one candidate, where nothing is chosen, fewer rounds than kLeastRounds may be asked for.
void ask(Comparison& q, size_t rounds, const Deadline& deadline, bool enumerate);

}  // namespace mxt::autotune
