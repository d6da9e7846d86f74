#include "infer/engine.h"

#include "base/error.h"

namespace mxt::infer {

Engine::Engine(Model& model, const EngineSettings& settings)
    : scheduler_(model, {.batch = settings.batch,
                         .tokens_per_pass = settings.tokens_per_pass,
                         .prompt_piece = settings.tokens_per_pass}) {}

std::vector<Answer> Engine::generate(const std::vector<Request>& requests,
                                     const std::function<bool(size_t, int32_t)>& on_token,
                                     const std::function<void(size_t, const Answer&)>& on_done) {
  std::vector<Answer> answers(requests.size());
  std::vector<Scheduler::Id> ids;
  size_t left = requests.size();
  std::string failed;
  auto finish = [&] {
    while (left > 0) scheduler_.step();
  };
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      Sink sink;
      sink.token = [&, i](const NewToken& t) {
        answers[i].tokens.push_back(t.id);
        if (requests[i].logprobs >= 0) answers[i].logprobs.push_back(t.logprob);
        return !on_token || on_token(i, t.id);
      };
      sink.done = [&, i](const Outcome& o) {
        answers[i].stopped = o.finish == Finish::kStop;
        if (o.finish == Finish::kFailed)
          failed = o.error;
        else if (on_done)
          on_done(i, answers[i]);
        --left;
      };
      ids.push_back(scheduler_.submit(requests[i], std::move(sink)));
    }
  } catch (...) {  // a request that cannot be: none of the others is answered
    for (auto id : ids) scheduler_.cancel(id);
    left = ids.size();
    finish();
    throw;
  }
  finish();
  if (!failed.empty()) throw Error(Exit::kBadInput, failed);
  return answers;
}

}  // namespace mxt::infer
