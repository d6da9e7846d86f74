// The rule by which measurements become choices. It is made so that two probes of one machine choose alike: candidates
// are compared within rounds, in the rounds that nothing disturbed, and the default stays unless another is clearly
// faster.
#pragma once

#include <string>
#include <vector>

#include "kernels/plan.h"

namespace mxt::autotune {

// samples[c][r]: µs of candidate c in round r. A round has timed every candidate, one right after the other. A
// candidate that failed has no samples.
using Samples = std::vector<std::vector<double>>;

// What another candidate must gain over the default to replace it, beside the error that its own rounds show. In host
// memory the gain of a call of a millisecond moves by up to 10 points from process to process (which pages, which
// neighbours: ten probes of the characters' recipe), and the rounds of one process do not show it. A device with memory
// and a clock of its own repeats to a fraction of a percent, and its candidates lie close together: the rounds' own
// error decides.
inline constexpr double kHostMargin = 0.25, kDeviceMargin = 0.005;
// What all choices together must gain in the whole step in host memory, beside its error: the same choices gained 0.4,
// 2.1 and 6.4 % in three probes of one quiet machine (the characters' recipe, two cores with AMX).
inline constexpr double kHostWhole = 0.10;
// A candidate that takes this many times the default's time twice is timed no more: it could not win.
inline constexpr double kHopeless = 1.5;
// Fewer rounds are no measurement.
inline constexpr size_t kLeastRounds = 5;
// A difference below this part of the faster time counts as noise between two plans (bench --against), however little
// the samples spread.
inline constexpr double kNoise = 0.05;

// The quieter half of the rounds (rounded up), in their order. A round's disturbance is the sum of its candidates'
// times, each over the least that the candidate ever took: what slows a machine for a while slows all of a round, a
// spike one of it.
std::vector<size_t> quiet_rounds(const Samples& samples);

// Median and interquartile range of a candidate over these rounds (linear interpolation between order statistics, as
// numpy.percentile); zeros without samples.
kernels::Candidate summarise(std::string algorithm, const std::vector<double>& samples,
                             const std::vector<size_t>& rounds);

// How much faster `c` is than `base`: the median over the quiet rounds of t(base) / t(c), less 1.
struct Gain {
  double value = 0;
  double error =
      0;  // half of the median's 95 % interval: 1.57 · interquartile range / √rounds (McGill, Tukey, Larsen 1978)
};
Gain gain(const Samples& samples, size_t base, size_t c);

// Index of the choice; candidate 0 is the default. Another replaces it when its gain is larger than `margin` and than
// the gain's error; of several the fastest, or one with a smaller name that the fastest does not beat by as much. With
// fewer than kLeastRounds rounds, or without the default's, the default stays.
size_t choose(const std::vector<std::string>& names, const Samples& samples, double margin = kHostMargin);

// Whether another round could still change the choice: a gain lies nearer to the margin than its error (at least a
// quarter of the margin).
bool undecided(const Samples& samples, double margin = kHostMargin);

// Whether `c` of one plan is as fast as `faster` of another: within either's interquartile range, or what processes
// differ by (`host`: 25 %, else 5 %).
bool within_noise(const kernels::Candidate& c, const kernels::Candidate& faster, bool host);

}  // namespace mxt::autotune
