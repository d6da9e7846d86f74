// Rollouts: prompts with sampled completions and what these were worth, given in a file or written by a run in the same
// form, one prompt a line:
//   {"prompt_ids": […], "completions": [{"ids": […], "reward": x | null, "old_logprobs": […], "mask": […]}, …]}
// `mask`, where an answer holds what it did not say itself (results of tools): 1 for each of its own tokens, 0 for the
// others, which are not trained on and whose log-probabilities mean nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/recipe.h"

namespace mxt::train {

struct Turn {
  std::string role, text;  // assistant, or tool with a call's result
};

// Log-probabilities are of its own tokens alone.
struct Completion {
  std::vector<int32_t> ids;       // with its end token where it has one
  std::vector<uint8_t> own;       // of each id: whether the policy said it; empty: all
  std::optional<double> reward;   // none: nothing could score it
  std::vector<float> old_logp;    // ln p of each token when it was sampled; empty: the policy's own of this step
  std::vector<float> old_values;  // PPO: of the state before each of its own tokens, and of that behind the last
  double advantage = 0;           // GRPO fills it in; PPO: the mean over its tokens
  // Of our own rollouts: ln p of each token as it was sampled, and under the reference.
  std::vector<float> sampled_logp, reference;
  std::string error;
  std::string text;                       // of our own rollouts
  std::map<std::string, double> rewards;  // of our own: each reward by name
  std::vector<Turn> turns;                // of our own, where there are tools
  int64_t calls = 0, failed_calls = 0;    // that tools were asked

  int64_t trained() const {  // tokens of its own
    return own.empty() ? static_cast<int64_t>(ids.size()) : std::count(own.begin(), own.end(), uint8_t{1});
  }
};

struct Rollout {
  std::vector<int32_t> prompt;
  std::string text;  // of the prompt, in our own rollouts
  std::vector<Completion> completions;
};

// A prompt with its answer, and the labels of that: the policy's own tokens are targets.
struct LabelledAnswer {
  std::vector<int32_t> ids, labels;
};
LabelledAnswer labelled(const std::vector<int32_t>& prompt, const Completion& completion);

// Optimizer steps on each batch of completions.
inline int64_t steps_per_batch(const config::Method& m) {
  return m.kind == config::MethodKind::kPpo ? m.inner_epochs : m.num_iterations;
}

// Errors (kBadInput) name file and line: no ids, a completion without tokens, old_logprobs of another length, a number
// of completions other than `generations`, ids outside the vocabulary, a prompt and completion longer than `seq_len`.
// `name`: of the file in messages.
struct RolloutLimits {
  int64_t generations = 1, vocab = 0, seq_len = 0;
  int64_t answer = 0;  // tokens; 0: as many as seq_len lets
};
std::vector<Rollout> read_rollouts(const std::string& path, const std::string& name, const RolloutLimits& limits);
OrderedJson to_json(const Rollout& rollout);
// The inverse, of what a run has written.
Rollout rollout_from_json(const OrderedJson& j);

}  // namespace mxt::train
