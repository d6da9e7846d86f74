// Generation: requests share passes over the model (continuous batching); each keeps its own pages of the cache. What a request gets
// does not depend on what else is in the batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/cache.h"
#include "infer/model.h"
#include "infer/sampler.h"

namespace mxt::infer {

struct Request {
  std::vector<int32_t> prompt;    // not empty
  int64_t max_tokens = 128;       // of the answer; cut to what fits the model's positions
  std::vector<int32_t> stop;      // ends the answer; not part of it
  Sampling sampling;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;    // of each token under the model (before temperature)
  bool stopped = false;           // by a stop token, not by length
};

struct EngineSettings {
  int64_t batch = 16;             // requests at once
  int64_t tokens_per_pass = 512;  // prompt pieces and new tokens together
};

class Engine {
 public:
  Engine(Model& model, const EngineSettings& settings);
  // Answers in the order of the requests. `on_token(request, id)` is called for each new token; returning false ends that request.
  // Errors (kBadInput): an empty prompt, or one longer than the model's positions.
  // `on_done(request, answer)` is called once for each request when its answer is complete.
  std::vector<Answer> generate(const std::vector<Request>& requests, const std::function<bool(size_t, int32_t)>& on_token = {},
                               const std::function<void(size_t, const Answer&)>& on_done = {});

 private:
  struct Slot;
  Model& model_;
  EngineSettings settings_;
  std::unique_ptr<runtime::Program> program_;
  PagedCache cache_;
};

}  // namespace mxt::infer
