#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mxt::optim {

int64_t warmup_steps(const config::Schedule& s, int64_t steps) {
  if (s.warmup_steps) return *s.warmup_steps;
  return static_cast<int64_t>(std::nearbyint(s.warmup_ratio * static_cast<double>(steps)));  // ties to even
}

double falling_steps(const config::Schedule& s, int64_t steps) {
  if (s.type != config::ScheduleType::kWsd) return 0;
  const auto all = static_cast<double>(steps);
  return s.decay_ratio ? std::nearbyint(*s.decay_ratio * all) : all / 5;
}

double learning_rate(const config::Schedule& s, double lr, int64_t step, int64_t steps) {
  const int64_t warmup = warmup_steps(s, steps);
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (steps == warmup) return lr;
  const double x = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup), m = s.min_lr_ratio;
  switch (s.type) {
    case config::ScheduleType::kCosine:
      return lr * (m + (1 - m) * (1 + std::cos(std::numbers::pi * x)) / 2);
    case config::ScheduleType::kLinear:
      return lr * (m + (1 - m) * (1 - x));
    case config::ScheduleType::kConstant:
      return lr;
    case config::ScheduleType::kWsd: {
      const double fall = falling_steps(s, steps),
                   into = static_cast<double>(step) - (static_cast<double>(steps) - fall);
      return into <= 0 ? lr : lr * (1 - (1 - m) * std::min(1.0, into / fall));
    }
  }
  return lr;
}

}  // namespace mxt::optim
