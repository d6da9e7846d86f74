// Generation for a fixed list of requests: the scheduler, stepped until all are answered.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "infer/scheduler.h"

namespace mxt::infer {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // of each token under the model (before temperature)
  bool stopped = false;         // by a stop token, not by length
};

struct EngineSettings {
  int64_t batch = 16;             // requests at once
  int64_t tokens_per_pass = 512;  // prompt pieces and new tokens together
};

class Engine {
 public:
  Engine(Model& model, const EngineSettings& settings);
  // Answers in the order of the requests. `on_token(request, id)` is called for each new token; returning false ends
  // that request. Errors (kBadInput): an empty prompt, or one longer than the model's positions. `on_done(request,
  // answer)` is called once for each request when its answer is complete.
  std::vector<Answer> generate(const std::vector<Request>& requests,
                               const std::function<bool(size_t, int32_t)>& on_token = {},
                               const std::function<void(size_t, const Answer&)>& on_done = {});

 private:
  Scheduler scheduler_;
};

}  // namespace mxt::infer
