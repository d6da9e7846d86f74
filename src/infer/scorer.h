// Per-token log-probabilities of given texts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/stop.h"
#include "infer/model.h"
#include "infer/shown.h"

namespace mxt::infer {

class Scorer {
 public:
  Scorer(Model& model, int64_t tokens_per_pass = 2048);
  // For each row logprobs[t] = ln p(ids[t] | ids[< t]); logprobs[0] is NaN (nothing precedes it). Rows longer than the
  // model's positions or with ids outside the vocabulary: kBadInput naming the row. `stop`: looked at between passes
  // (kInterrupted).
  // `shown`: the pictures of each row, or none at all.
  std::vector<std::vector<float>> score(const std::vector<std::vector<int32_t>>& rows, StopFlag stop = nullptr,
                                        const std::vector<Shown>& shown = {});
  // For each row of inputs logprobs[t] = ln p(targets[t] | inputs[≤ t]), NaN where targets[t] is −100. Same errors.
  std::vector<std::vector<float>> score_targets(const std::vector<std::vector<int32_t>>& inputs,
                                                const std::vector<std::vector<int32_t>>& targets,
                                                StopFlag stop = nullptr, const std::vector<Shown>& shown = {});
  // exp(mean −ln p) of a long text, read in windows of `window` tokens that overlap by half, each token scored once
  // with at least half a window before it (but for the first). `stop`: looked at between windows (kInterrupted).
  double perplexity(const std::vector<int32_t>& ids, int64_t window, StopFlag stop = nullptr);

 private:
  Model& model_;
  int64_t max_tokens_;
  std::unique_ptr<runtime::Program> program_;
};

}  // namespace mxt::infer
