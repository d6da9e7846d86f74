// The rule by which measurements become choices. It is written down so that two probes of a quiet machine choose alike: the clock
// decides only where the difference is larger than the noise.
#pragma once

#include <string>
#include <vector>

#include "kernels/plan.h"

namespace mxt::autotune {

// A difference below this part of the faster time counts as noise, however little the samples spread.
inline constexpr double kNoise = 0.05;
// A call whose gain is below this part of the whole pass keeps the default: nobody would feel it.
inline constexpr double kFelt = 0.002;

// Median and interquartile range of samples in µs (linear interpolation between order statistics, as numpy.percentile).
kernels::Candidate summarise(std::string algorithm, std::vector<double> samples);

// Whether `c` is as fast as `fastest` to within noise: max(5 %, either's interquartile range).
bool within_noise(const kernels::Candidate& c, const kernels::Candidate& fastest);

// Index of the choice. `candidates[0]` is the default; one with median 0 was not measured. The fastest is taken, unless the default
// is within noise of it, or else another with a smaller name is. An unmeasured default stays. `pass_us`: what the whole pass takes
// (0 = not known), `count`: how often the call stands in it.
size_t choose(const std::vector<kernels::Candidate>& candidates, double count = 1, double pass_us = 0);

// Whether another round could still change the choice: a candidate stands near the edge of the noise.
bool undecided(const std::vector<kernels::Candidate>& candidates, double count = 1, double pass_us = 0);

}  // namespace mxt::autotune
