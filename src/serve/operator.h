// The operator: OpenAI's API in front of a model. Everything that comes in is checked before it costs anything;
// everything that goes out has OpenAI's shape, errors too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "infer/scheduler.h"
#include "serve/http/server.h"
#include "serve/keys.h"
#include "serve/metrics.h"
#include "serve/output/parsers.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace mxt::pay {
class Meter;
}

namespace mxt::serve {

// What is served: one base model and adapters over it, each by a name.
// A prompt with pictures: its ids, in which their places stand expanded, and what is seen there.
struct ShownPrompt {
  std::vector<int32_t> ids;
  std::shared_ptr<const infer::Shown> shown;
};

struct ServedModel {
  infer::Model* model = nullptr;
  infer::Scheduler* scheduler = nullptr;
  std::shared_ptr<const tokenizer::Tokenizer> tok;
  std::shared_ptr<const tokenizer::ChatTemplate> chat;  // null: no chat completions
  std::string chat_source;
  std::vector<int32_t> stop;  // end-of-turn tokens
  // Of a model that sees pictures: rendered text in which each picture is `picture_mark` (in none of `plain`), and
  // their data URIs, to a prompt. Errors (kBadInput): what is no picture. Any thread.
  std::function<ShownPrompt(std::string text, std::vector<tokenizer::Span> plain, const std::vector<std::string>& uris)>
      show;
  std::string picture_mark, picture_remedy;  // the second: of one that sees none, where one may be that does, or ""
  std::vector<std::pair<std::string, int>>
      names;  // the first is what a request without "model" gets; second: the adapter, −1 the base
};

struct OperatorSettings {
  std::vector<ApiKey> keys;  // empty: anyone
  bool local = true;         // listens on loopback alone
  ReasoningStyle reasoning = ReasoningStyle::kThinkTags;
  bool always_thinks = false;  // the model thinks without being asked (DeepSeek-R1)
  ToolStyle tools = ToolStyle::kHermes;
  int64_t max_queue = 256;    // requests that wait; more are answered 429
  int64_t max_choices = 128;  // prompts × n of one request
  int64_t max_logprobs = 20;
  double request_seconds = 600;  // longest life of a request
  pay::Meter* meter = nullptr;   // set: answers are paid for; stopped before the operator ends
  std::string upstream,
      upstream_key;  // set: an OpenAI-compatible server (http://host:port) that has the model; ServedModel is empty
};

// Training jobs, as another room runs them: /v1/training/jobs. Each call may throw ApiError.
class TrainingJobs {
 public:
  virtual ~TrainingJobs() = default;
  virtual std::string create(const std::string& body) = 0;  // JSON of the job
  virtual std::string list() = 0;
  virtual std::string get(const std::string& id) = 0;
  virtual std::string cancel(const std::string& id) = 0;
  virtual std::string resume(const std::string& id) = 0;  // what was cancelled, or failed, goes on where it was
  // Lines of the job's metrics from `line` on, and whether it is over.
  virtual std::pair<std::vector<std::string>, bool> events(const std::string& id, size_t line) = 0;
};

class Coach;
struct OperatorState;

class Operator {
 public:
  // An empty ServedModel without an upstream serves no model: /health, jobs and Coach alone.
  Operator(ServedModel served, OperatorSettings settings, TrainingJobs* jobs = nullptr, Coach* coach = nullptr);
  ~Operator();
  Operator(const Operator&) = delete;

  // The two halves of an HttpServer.
  std::optional<HttpAnswer> gate(const HttpRequest& request);
  void handle(const HttpRequest& request, std::shared_ptr<Reply> reply);
  // For /metrics and the drain.
  void set_connections(std::function<int64_t()> f);
  void set_draining();

 private:
  std::shared_ptr<OperatorState> s_;
};

}  // namespace mxt::serve
