// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mxt::infer {

struct Sampling {
  double temperature = 0;  // 0: the most likely token, the lowest id among equals
  int64_t top_k = 0;       // 0: off
  double top_p = 1, min_p = 0;
  uint64_t seed = 0;
};

// The n-th draw of a request: a function of (logits, settings, n), so it does not depend on what else is in the batch. Order of the
// filters as transformers applies them: temperature, top-k, top-p, min-p.
int32_t sample(std::span<const float> logits, const Sampling& s, uint64_t n);

// ln Σ exp of the logits, in double.
double log_sum_exp(std::span<const float> logits);

}  // namespace mxt::infer
