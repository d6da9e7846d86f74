// One HTTP request's answers while they are made: several choices, each a request of the scheduler. Internal to the
// room.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "infer/calculator.h"
#include "serve/operator_state.h"
#include "serve/output/text_stream.h"
#include "serve/paid.h"

namespace mxt::serve {

class Generation : public Timed, public std::enable_shared_from_this<Generation> {
 public:
  Generation(OperatorState& s, std::shared_ptr<Reply> reply, TicketPtr ticket, CommonFields common, std::string model);
  // One request a choice, once it is paid for where answers are sold. Errors before anything is written: ApiError.
  void start(std::vector<infer::Request> requests, const HttpRequest& http);
  void expire_if_late(std::chrono::steady_clock::time_point now) override;

 protected:
  struct Choice {
    size_t index = 0;
    infer::Scheduler::Id id = 0;
    TextStream text{{}};
    std::optional<infer::CalculationMarks> marks;  // where control tokens are not shown
    std::deque<std::pair<infer::NewToken, size_t>>
        waiting;  // tokens whose text is not certain yet, and where it begins
    int64_t prompt_tokens = 0, tokens = 0, shared = 0;
    std::string reason;
    bool done = false;
    std::chrono::steady_clock::time_point last;
  };
  // Hooks, called under the lock. A token is told when its text is certain, that of a stop string never; then the text
  // that became certain.
  virtual void on_prompt(Choice&, const std::vector<infer::NewToken>&) {}
  virtual void on_token(Choice& c, const infer::NewToken& t) = 0;
  virtual bool on_text(Choice& c, const std::string& text) = 0;  // false: enough
  virtual void on_end(Choice& c, const std::string& text) = 0;
  virtual OrderedJson body() = 0;        // the whole answer, where it is not streamed
  virtual OrderedJson last_chunk() = 0;  // the stream's frame without choices, for usage

  void write_event(const OrderedJson& j);
  OrderedJson usage() const;
  void put_usage(OrderedJson& chunk) const;  // of a stream, where the request asks for it
  std::string token_text(int32_t id) const;

  OperatorState& s_;
  const CommonFields common_;
  const std::string model_;
  const int64_t created_;
  int64_t prompt_tokens_ = 0;  // of distinct prompts
  size_t per_prompt_ = 1;      // choices of one prompt stand side by side
  bool tags_ = false;          // the text is parsed: tags are told though they are control tokens

 private:
  void submit(std::vector<infer::Request> requests);
  bool token(size_t i, const infer::NewToken& t);
  void done(size_t i, const infer::Outcome& o);
  void tell(Choice& c, bool all);
  void cancel_all();
  void finish();
  void give_up(const char* why);
  void deliver(const ApiError& e, const net::Headers& paid);

  std::shared_ptr<Reply> reply_;
  std::shared_ptr<pay::Grant> grant_;  // null: nothing is sold
  TicketPtr ticket_;
  const std::chrono::steady_clock::time_point born_;
  std::chrono::steady_clock::time_point paid_until_ = std::chrono::steady_clock::time_point::max();
  std::mutex mutex_;
  std::vector<Choice> choices_;
  size_t left_ = 0;
  bool late_ = false, unpaid_ = false, begun_ = false, constrained_ = false;
  std::string failure_;
};

std::string dump(const OrderedJson& j);

}  // namespace mxt::serve
