// Choosing the next token from logits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mxt::infer {

struct Sampling {
  double temperature = 0;  // 0: the most likely token, the lowest id among equals
  int64_t top_k = 0;       // 0: off
  double top_p = 1, min_p = 0;
  uint64_t seed = 0;
  // Keskar et al. 2019, as transformers: a positive logit of a token seen in prompt or answer is divided, a negative
  // one multiplied.
  double repetition_penalty = 1;
  // OpenAI's: logit − presence·[in the answer] − frequency·(times in the answer).
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits of these ids
  bool filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  bool adjusts() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || !logit_bias.empty();
  }
};

// How often each token was in the answer; a token of the prompt alone has the count 0.
using Seen = std::unordered_map<int32_t, int32_t>;

// Penalties and biases, in place; finite logits stay finite.
void adjust(std::span<float> logits, const Sampling& s, const Seen& seen);
// No NaN and no infinity among them.
bool all_finite(std::span<const float> logits);
// All are −∞.
bool nothing_left(std::span<const float> logits);
// Ids outside the bit set become −∞.
void allow_only(std::span<float> logits, std::span<const uint64_t> allowed);

// The n-th draw of a request: a function of (logits, settings, n), so it does not depend on what else is in the batch.
// Order of the filters as transformers applies them: temperature, top-k, top-p, min-p. Logits are finite or −∞, and not
// all −∞; a token of −∞ is never drawn.
// The uniform number of it, high and low.
std::array<uint32_t, 2> uniform_bits(const Sampling& s, uint64_t n);
int32_t sample(std::span<const float> logits, const Sampling& s, uint64_t n);

// ln Σ exp of the logits, in double.
double log_sum_exp(std::span<const float> logits);
// The most likely id, the lowest among equals.
int32_t most_likely(std::span<const float> logits);
// The `count` most likely ids, best first, the lower id among equals.
std::vector<int32_t> most_likely(std::span<const float> logits, int64_t count);

}  // namespace mxt::infer
