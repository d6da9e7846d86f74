// Learning rate by optimizer step, as RECIPE.md defines it: W = round(warmup_ratio · S) half to even; lr·(s+1)/W while
// s < W; then with x = (s−W)/(S−W) and m = min_lr_ratio: cosine lr(m + (1−m)(1+cos πx)/2), linear lr(m + (1−m)(1−x)),
// constant lr, WSD lr and then linear to m over the last fifth of the steps, or over round(decay_ratio · S) of them.
// warmup_steps is W where it is given.
#pragma once

#include <cstdint>

#include "config/recipe.h"

namespace mxt::optim {

double learning_rate(const config::Schedule& schedule, double lr, int64_t step, int64_t steps);
int64_t warmup_steps(const config::Schedule& schedule, int64_t steps);
double falling_steps(const config::Schedule& schedule, int64_t steps);  // at the end of wsd; 0 of every other

}  // namespace mxt::optim
