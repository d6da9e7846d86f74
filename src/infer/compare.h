// How far one model's predictions are from another's, over a text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/stop.h"
#include "infer/model.h"

namespace mxt::infer {

struct Comparison {
  int64_t tokens = 0;  // that were predicted
  double kl = 0;       // mean over them of KL(p_a ‖ p_b), in nats
  double perplexity_a = 0, perplexity_b = 0;
  double same_top = 0;  // share of them for which both hold the same token most likely
};

// Reads `ids` in windows of `window` tokens that overlap by half; each token is predicted once, with at least half a
// window before it (but for the first). Logits are fp32; sums are in double and in a fixed order. kBadInput where the
// vocabularies differ, an id is outside of them or the text has fewer than two tokens; kInterrupted between windows
// once `stop` is set.
Comparison compare(Model& a, Model& b, const std::vector<int32_t>& ids, int64_t window, StopFlag stop = nullptr);

// What that holds for two models of this configuration on the host: their weights, their programs and caches, logits,
// and of each what Weights::kForMany lays out once more where `free` bytes of memory bear it.
int64_t comparison_bytes(const formats::ModelConfig& config, DType type, int64_t window, uint64_t free,
                         kernels::Ops& ops);

}  // namespace mxt::infer
