// What the operator's endpoints share. Internal to the room.
#pragma once

#include <list>
#include <unordered_map>

#include "serve/api_error.h"
#include "serve/coach/coach.h"
#include "serve/grammar/grammar.h"
#include "serve/operator.h"
#include "serve/protocol/fields.h"

namespace mxt::serve {

// A request under way, which is to end in time.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual void expire_if_late(std::chrono::steady_clock::time_point now) = 0;
};

struct OperatorState {
  ServedModel served;
  OperatorSettings settings;
  TrainingJobs* jobs = nullptr;
  Coach* coach = nullptr;
  std::unique_ptr<KeyRing> keys;
  Metrics metrics;
  int64_t created = 0;  // Unix time
  std::atomic<bool> draining{false};
  std::atomic<int> followers{0};  // threads that follow a run or work for Coach
  std::function<int64_t()> connections;

  // Bytes of the vocabulary for grammars; made when first wanted.
  std::shared_ptr<const TokenBytes> token_bytes();
  // A compiled grammar, kept by its source text.
  std::shared_ptr<Automaton> grammar(const std::string& source, const std::function<Grammar()>& compile);

  // Requests under way, so that they end in time.
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::list<std::weak_ptr<Timed>> under_way;
  std::thread clock;
  void watch(const std::shared_ptr<Timed>& request);
  void run_clock();

  int adapter_of(const Fields& f, std::string& name) const;  // ApiError 404 for an unknown model
  void check_room(int64_t requests);                         // ApiError 429 where the queue is full
  // Ids as given, or a text's; `special`: with what its tokenizer puts before a text (a BOS), as in training.
  std::vector<int32_t> encode(const Prompt& p, const std::string& name, bool special = true) const;
  // ApiError 400 for more than the context, before anything is made of it n times over.
  void check_length(const std::vector<int32_t>& ids, const std::string& name) const;

 private:
  std::mutex grammar_mutex_;
  std::shared_ptr<const TokenBytes> token_bytes_;
  std::list<std::pair<std::string, std::shared_ptr<Automaton>>> grammars_;  // the latest first
};

// Endpoints. The ticket is kept while the request lives.
using TicketPtr = std::unique_ptr<KeyRing::Ticket>;
void chat_completions(OperatorState& s, const HttpRequest& r, std::shared_ptr<Reply> reply, TicketPtr ticket, int key);
void completions(OperatorState& s, const HttpRequest& r, std::shared_ptr<Reply> reply, TicketPtr ticket, int key);
void embeddings(OperatorState& s, const HttpRequest& r, std::shared_ptr<Reply> reply, TicketPtr ticket, int key);
// Passes the request on to settings.upstream.
void forward(OperatorState& s, const HttpRequest& r, std::shared_ptr<Reply> reply, TicketPtr ticket);
std::string tokenize(OperatorState& s, const std::string& body);
std::string detokenize(OperatorState& s, const std::string& body);
std::string tokenizer_info(OperatorState& s);
std::string openapi_document();
// Training jobs; `rest`: the path after that of the list ("", "/ID", "/ID/cancel" …).
void training(OperatorState& s, const HttpRequest& r, const std::string& rest, const std::shared_ptr<Reply>& reply);
void coach(OperatorState& s, const HttpRequest& r, const std::shared_ptr<Reply>& reply);
// Server-sent events: the lines as they come, at the end `last` as the event "end". `events`: lines from a number on,
// and whether it is over.
void follow(OperatorState& s, const std::shared_ptr<Reply>& reply,
            std::function<std::pair<std::vector<std::string>, bool>(size_t)> events, std::function<std::string()> last);

// What a chat and a completion may both say.
inline constexpr std::string_view kCommonNames[] = {"model",
                                                    "temperature",
                                                    "top_p",
                                                    "top_k",
                                                    "min_p",
                                                    "n",
                                                    "stream",
                                                    "stream_options",
                                                    "logprobs",
                                                    "stop",
                                                    "presence_penalty",
                                                    "frequency_penalty",
                                                    "repetition_penalty",
                                                    "logit_bias",
                                                    "user",
                                                    "seed",
                                                    "min_tokens",
                                                    "ignore_eos",
                                                    "stop_token_ids",
                                                    "skip_special_tokens",
                                                    "include_stop_str_in_output",
                                                    "priority",
                                                    "max_tokens"};
// Sampling and limits that every endpoint reads alike. `otherwise`: max_tokens where the request says nothing; −1: what
// is left.
struct CommonFields {
  infer::Request request;
  std::vector<std::string> stops;
  bool stream = false, include_usage = false, each_usage = false, keep_stop = false, skip_special = true;
  int64_t n = 1;
};
CommonFields read_common(const OperatorState& s, const Fields& f, const char* max_tokens_name, int64_t otherwise);

// A chat request's messages and tools as the template takes them, checked.
struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  std::shared_ptr<const infer::Shown> shown;  // null: no pictures
  OrderedJson tools;                          // null where none are offered
  bool thinking = false;                      // what comes is reasoning until </think>
  bool thinking_opened = false;               // the prompt itself ends within <think>
};
ChatPrompt render_chat(const OperatorState& s, const Fields& f, OrderedJson tools);
// The request's tools in OpenAI's form, checked; null where there are none.
OrderedJson read_tools(const Fields& f);

std::string random_hex(int digits);

}  // namespace mxt::serve
