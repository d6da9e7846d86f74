// The one way to generate: requests are submitted and cancelled at any time and from any thread; whoever calls step()
// does the work. Requests share passes over the model (continuous batching); long prompts are read in pieces between
// the tokens of others; full pages of the cache are shared by prompts that begin alike. What a request gets does not
// depend on what else is in the batch, on how its prompt was cut, or on what the cache already held; on a GPU that
// holds to the bit for passes of up to 64 tokens, beyond which the library's products round as it suits their shape.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "infer/cache.h"
#include "infer/constraint.h"
#include "infer/logit_rows.h"
#include "infer/model.h"
#include "infer/sampler.h"
#include "infer/shown.h"
#include "infer/states.h"
#include "infer/tool.h"

namespace mxt::infer {

struct Request {
  std::vector<int32_t> prompt;  // not empty
  int64_t max_tokens = 128;     // of the answer; cut to what fits the model's positions
  std::vector<int32_t> stop;    // ends the answer; not part of it
  Sampling sampling;
  int64_t min_tokens =
      0;  // stop tokens are impossible before; where they are all that is left the answer ends all the same
  int64_t logprobs =
      0;  // so many likely alternatives with each token; 0: the token's own alone; −1: no log-probabilities
  int64_t prompt_logprobs = -1;  // the same for the prompt's own tokens
  bool tempered = false;         // an answer's log-probabilities are of the logits over the temperature
  bool hidden = false;           // wanted: what the head reads, averaged over the prompt; no answer is generated
  int adapter = -1;              // a number of Model::add_adapter
  int64_t priority = 0;          // lower goes first
  uint64_t group = 0;            // whose request it is: waiting requests of one priority take turns between groups
  std::shared_ptr<Constraint> constraint;
  std::shared_ptr<Tool> tool;          // not beside a constraint
  std::shared_ptr<const Shown> shown;  // the prompt's pictures, whose places stand expanded in it; null: none
};

// Log-probabilities are the model's own: before temperature (but for Request::tempered), penalties and constraints.
struct TokenChoice {
  int32_t id = 0;
  float logprob = 0;
};
struct NewToken {
  int32_t id = 0;
  float logprob = 0;                // NaN where not wanted, and for a prompt's first token; 0 of what a tool says
  std::vector<TokenChoice> likely;  // best first
};

enum class Finish : uint8_t {
  kStop,  // a stop token, a complete constraint after which nothing may come, or the sink wanted no more
  kLength,
  kCancelled,
  kFailed,  // `error` says why
};
struct Outcome {
  Finish finish = Finish::kStop;
  std::string error;
  int64_t shared_tokens = 0;  // of the prompt, found in the cache
};

// Called by the thread that steps, one at a time; must not block. `done` is the last call, and always comes.
struct Sink {
  std::function<bool(const NewToken&)> token;                // false: no more are wanted
  std::function<void(const std::vector<NewToken>&)> prompt;  // with prompt_logprobs; before the first token
  std::function<void(const std::vector<float>&)> hidden;     // with `hidden`
  std::function<void(const Outcome&)> done;
};

struct SchedulerSettings {
  int64_t batch = 16;             // requests at once
  int64_t tokens_per_pass = 512;  // prompt pieces and new tokens together; at least `batch`
  int64_t prompt_piece = 512;     // most prompt tokens of a pass in which others wait for their next token
  int64_t cache_pages = 0;        // 0: room for `batch` full contexts
  bool prefix_cache = true;
  // Of models whose layers carry a state (states.h): copies of such states at ends of pages, which shared beginnings
  // take.
  int64_t state_copies() const { return prefix_cache ? batch / 2 + 1 : 0; }
};

// Counters since the beginning, and what is now.
struct SchedulerStats {
  int64_t waiting = 0, running = 0;
  int64_t cache_pages = 0, cache_available = 0;
  int64_t requests = 0, prompt_tokens = 0, shared_tokens = 0, new_tokens = 0, passes = 0, preemptions = 0;
};

class Scheduler {
 public:
  Scheduler(Model& model, const SchedulerSettings& settings);
  ~Scheduler();  // stop()
  Scheduler(const Scheduler&) = delete;

  using Id = uint64_t;
  // Any thread. Errors (kBadInput): an empty prompt, one longer than the model's positions, ids outside the vocabulary.
  Id submit(Request request, Sink sink);
  void cancel(Id id);  // its `done` follows soon, unless it has been
  SchedulerStats stats() const;

  // Compiles the model's program now, and not when the first request comes: kernels are chosen then.
  void prepare() { program(-1); }
  // What the cache holds was computed with other weights; not while requests run.
  void forget_cache() { cache_.forget(), states_.forget(), changed_.assign(programs_.size(), true); }
  // One pass. False where there was nothing to do.
  bool step();
  // A thread of our own that steps while there is work; stop() ends it, unfinished requests are cancelled.
  void start();
  void stop();

 private:
  struct Slot;
  using SlotPtr = std::unique_ptr<Slot>;
  struct Pass;
  void take_arrivals();
  void admit();
  void place(Slot& s);
  bool shares(const Slot& s) const;
  void plan_copies(Slot& s) const;
  int64_t until_copy(const Slot& s, int64_t tokens) const;
  void locate(Slot& s) const;
  void add_place(const Slot& s, int64_t at, Pass& p) const;
  bool ensure_pages(Slot& s, int64_t tokens);
  void release(Slot& s);
  void publish(Slot& s);
  void end(Slot& s, Finish why, std::string error = {});
  void build(Pass& p, int adapter);
  void run(Pass& p, int adapter);
  void take_samples(Pass& p);
  std::optional<NewToken> choose(const Slot& s, std::span<float> logits, std::span<const uint64_t> allowed,
                                 std::vector<float>& raw) const;
  std::optional<NewToken> draw(const Slot& s, std::span<const float> logits, std::span<const float> raw) const;
  void redraw(const Slot& s, std::span<float> logits, std::span<const float> raw, std::optional<NewToken>& token) const;
  void deliver(Slot& s, const NewToken& t);
  bool draws(const Slot& s) const;
  std::optional<NewToken> drawn(const Slot& s, int64_t row) const;
  void put(Slot& s, const NewToken& t);
  NewToken describe(std::span<const float> logits, int32_t id, int64_t likely, double temperature = 1) const;
  runtime::Program& program(int adapter);
  void loop();

  Model& model_;
  SchedulerSettings settings_;
  int64_t max_pages_;
  PagedCache cache_;
  SequenceStates states_;
  std::vector<std::unique_ptr<runtime::Program>> programs_;  // [adapter + 1]
  std::vector<bool> changed_;                                // likewise: the weights, since the last pass
  std::vector<SlotPtr> running_, waiting_;                   // running: in the order of admission
  std::map<uint64_t, uint64_t> turn_;                        // of a group: when one of its requests was last admitted
  uint64_t turns_ = 0;
  int last_adapter_ = -1;
  const int64_t edge_;  // tokens between places where states are copied
  const bool drawer_;   // tokens may be drawn where the logits are
  LogitRows logit_memory_, drawn_memory_;
  std::span<float> logits_;  // of the pass's wanted rows
  std::span<float> drawn_;   // of the same rows, where a pass draws: id and log-probability
  std::vector<float> hidden_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<SlotPtr> arrived_;
  std::vector<Id> cancelled_;
  Id next_id_ = 1;
  bool stopping_ = false;
  SchedulerStats stats_;
  std::thread thread_;
};

}  // namespace mxt::infer
