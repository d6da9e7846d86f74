#include "serve/operator.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "net/url.h"
#include "serve/coach/access.h"
#include "serve/generation.h"
#include "serve/operator_state.h"

namespace mxt::serve {
namespace {

constexpr size_t kKeptGrammars = 64;

struct Route {
  const char *method, *path;
  bool open;  // without a key
};
constexpr Route kRoutes[] = {{"GET", "/health", true},
                             {"GET", "/openapi.json", true},
                             {"GET", "/metrics", false},
                             {"GET", "/v1/models", false},
                             {"POST", "/v1/chat/completions", false},
                             {"POST", "/v1/completions", false},
                             {"POST", "/v1/embeddings", false},
                             {"POST", "/tokenize", false},
                             {"POST", "/detokenize", false},
                             {"GET", "/tokenizer_info", false}};

HttpAnswer answer_json(std::string body) { return {200, {{"Content-Type", "application/json"}}, std::move(body)}; }

ApiError error(int status, std::string type, std::string code, std::string message) {
  ApiError e;
  e.status = status;
  e.type = std::move(type);
  e.code = std::move(code);
  e.message = std::move(message);
  return e;
}

// Letters, digits, dots, dashes, brackets and a port: what a host can be.
bool is_host(std::string_view s) {
  if (s.empty() || s.size() > 255) return false;
  return std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
  });
}

}  // namespace

void OperatorState::watch(const std::shared_ptr<Timed>& request) {
  std::lock_guard lock(mutex);
  under_way.push_back(request);
}

void OperatorState::run_clock() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    wake.wait_for(lock, std::chrono::milliseconds(500));
    std::vector<std::shared_ptr<Timed>> alive;
    for (const auto& weak : under_way)
      if (auto g = weak.lock()) alive.push_back(std::move(g));
    std::erase_if(under_way, [](const auto& weak) { return weak.expired(); });
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& g : alive) g->expire_if_late(now);
    alive.clear();
    lock.lock();
  }
}

std::shared_ptr<const TokenBytes> OperatorState::token_bytes() {
  if (!token_bytes_) {
    std::vector<std::string> bytes(static_cast<size_t>(served.model->vocab()));
    for (int32_t id = 0; id < std::min<int64_t>(served.model->vocab(), served.tok->vocab_size()); ++id)
      if (!served.tok->is_special(id)) bytes[static_cast<size_t>(id)] = served.tok->token_bytes(id);
    for (int32_t id : served.stop)  // the end of a turn is no text, whatever the tokenizer says of it
      if (static_cast<size_t>(id) < bytes.size()) bytes[static_cast<size_t>(id)].clear();
    token_bytes_ = std::make_shared<TokenBytes>(bytes);
  }
  return token_bytes_;
}

std::shared_ptr<Automaton> OperatorState::grammar(const std::string& source, const std::function<Grammar()>& compile) {
  std::lock_guard lock(grammar_mutex_);
  for (auto it = grammars_.begin(); it != grammars_.end(); ++it)
    if (it->first == source) {
      grammars_.splice(grammars_.begin(), grammars_, it);
      return it->second;
    }
  auto made = std::make_shared<Automaton>(compile(), token_bytes());
  if (made->start() == Automaton::kDead) fail_input("the schema allows no value");
  made->tokens(made->start());  // what is too ambiguous shows here already, as the client's error
  grammars_.emplace_front(source, made);
  if (grammars_.size() > kKeptGrammars) grammars_.pop_back();
  return made;
}

int OperatorState::adapter_of(const Fields& f, std::string& name) const {
  name = f.text("model", served.names.front().first);
  for (const auto& [n, adapter] : served.names)
    if (n == name) return adapter;
  ApiError e = error(404, "invalid_request_error", "model_not_found",
                     fmt::format("the model \"{}\" does not exist here; /v1/models lists those that do", name));
  e.param = "model";
  throw e;
}

void OperatorState::check_room(int64_t requests) {
  if (draining) refuse_status(503, "server_error", "shutting_down", "the server is shutting down", 5);
  const auto stats = served.scheduler->stats();
  if (stats.waiting > 0 && stats.waiting + requests > settings.max_queue)
    refuse_status(429, "rate_limit_error", "queue_full",
                  fmt::format("{} requests are waiting, no more are taken", stats.waiting),
                  static_cast<int>(std::clamp<int64_t>(stats.waiting / 8, 1, 60)));
}

std::vector<int32_t> OperatorState::encode(const Prompt& p, const std::string& name, bool special) const {
  std::vector<int32_t> ids = !p.text   ? p.ids
                             : special ? served.tok->encode_with_prefix(*p.text)
                                       : served.tok->encode(*p.text);
  if (ids.empty()) refuse(name, "{} must not be empty", name);
  check_length(ids, name);
  return ids;
}

void OperatorState::check_length(const std::vector<int32_t>& ids, const std::string& name) const {
  if (!served.model || static_cast<int64_t>(ids.size()) <= served.model->positions()) return;
  ApiError e = error(400, "invalid_request_error", "context_length_exceeded",
                     fmt::format("the prompt has {} tokens, the model's context is {}: shorten it", ids.size(),
                                 served.model->positions()));
  e.param = name;
  throw e;
}

Operator::Operator(ServedModel served, OperatorSettings settings, TrainingJobs* jobs, Coach* coach)
    : s_(std::make_shared<OperatorState>()) {
  MXT_ASSERT(served.names.empty() || settings.upstream.empty());
  s_->served = std::move(served);
  std::vector<ApiKey> keys = settings.keys;
  s_->settings = std::move(settings);
  for (auto& k : s_->settings.keys) k.key.clear();
  s_->keys = std::make_unique<KeyRing>(std::move(keys));
  s_->jobs = jobs;
  s_->coach = coach;
  s_->created = std::time(nullptr);
  s_->clock = std::thread([s = s_.get()] { s->run_clock(); });
}

Operator::~Operator() {
  s_->draining = true;
  while (s_->followers > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  {
    std::lock_guard lock(s_->mutex);
    s_->stopping = true;
    s_->wake.notify_all();
  }
  s_->clock.join();
}

void Operator::set_connections(std::function<int64_t()> f) { s_->connections = std::move(f); }
void Operator::set_draining() { s_->draining = true; }

std::optional<HttpAnswer> Operator::gate(const HttpRequest& r) {
  auto no = [&](ApiError e) {
    s_->metrics.request("refused", e.status);
    return to_answer(e);
  };
  size_t hosts = 0;
  for (const auto& [name, value] : r.headers)
    if (name.size() == 4 && (name[0] | 32) == 'h' && (name[1] | 32) == 'o' && (name[2] | 32) == 's' &&
        (name[3] | 32) == 't') {
      ++hosts;
      if (!is_host(value)) return no(error(400, "invalid_request_error", "", "the Host header names no host"));
    }
  if (hosts > 1) return no(error(400, "invalid_request_error", "", "more than one Host header"));
  if (s_->coach && (r.path == "/coach" || r.path.starts_with("/coach/"))) {
    if (auto e = check_coach_access(r, *s_->keys, s_->settings.local, r.path.starts_with("/coach/api/")))
      return no(std::move(*e));
    return std::nullopt;
  }
  bool known = false, open = false, method = false;
  const std::string asked = r.method == "HEAD" ? "GET" : r.method;
  for (const Route& route : kRoutes)
    if (r.path == route.path) {
      known = true;
      open = route.open;
      method = method || asked == route.method;
    }
  const bool jobs = r.path == "/v1/training/jobs" || r.path.starts_with("/v1/training/jobs/");
  if (r.path.starts_with("/v1/models/")) known = true, method = asked == "GET";
  if (jobs) known = method = true;
  const int key = s_->keys->find(r.header("Authorization"));
  if (jobs) {
    if (s_->keys->open())
      return no(error(403, "permission_error", "", "training jobs need a key: start the server with --api-keys"));
    if (key >= 0 && !(*s_->keys)[key].jobs)
      return no(error(403, "permission_error", "", "this key may not run training jobs"));
  }
  if (!open && !s_->keys->open() && key < 0)
    return no(error(401, "authentication_error", "invalid_api_key",
                    "no valid API key: send it as \"Authorization: Bearer KEY\""));
  if (!known)
    return no(
        error(404, "invalid_request_error", "not_found", fmt::format("there is no {}", replace_invalid_utf8(r.path))));
  if (!method) {
    HttpAnswer a = no(error(405, "invalid_request_error", "method_not_allowed",
                            fmt::format("{} does not take {}", r.path, r.method)));
    std::string allow;
    for (const Route& route : kRoutes)
      if (r.path == route.path) allow = std::string_view(route.method) == "GET" ? "GET, HEAD" : route.method;
    a.headers.emplace_back("Allow", allow.empty() ? "GET, HEAD" : allow);
    return a;
  }
  return std::nullopt;
}

namespace {

std::string models_json(const OperatorState& s, const std::string* only) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [name, adapter] : s.served.names) {
    OrderedJson m{{"id", name},
                  {"object", "model"},
                  {"created", s.created},
                  {"owned_by", "mindxtrain"},
                  {"max_model_len", s.served.model->positions()}};
    m["parent"] = adapter < 0 ? OrderedJson(nullptr) : OrderedJson(s.served.names.front().first);
    if (only && name == *only) return dump(m);
    list.push_back(std::move(m));
  }
  if (only)
    refuse_status(404, "invalid_request_error", "model_not_found",
                  fmt::format("the model \"{}\" does not exist here", *only));
  return dump({{"object", "list"}, {"data", std::move(list)}});
}

std::string metrics_text(OperatorState& s) {
  const auto t = s.served.scheduler ? s.served.scheduler->stats() : infer::SchedulerStats{};
  auto n = [](int64_t x) { return static_cast<double>(x); };
  return s.metrics.text({{"requests_waiting", "Requests in the queue.", n(t.waiting), false},
                         {"requests_running", "Requests being answered.", n(t.running), false},
                         {"kv_cache_usage_ratio", "Part of the cache's pages in use.",
                          1 - n(t.cache_available) / n(std::max<int64_t>(t.cache_pages, 1)), false},
                         {"connections", "Open connections.", s.connections ? n(s.connections()) : 0, false},
                         {"prompt_tokens_total", "Prompt tokens computed.", n(t.prompt_tokens), true},
                         {"prompt_tokens_shared_total", "Prompt tokens found in the cache.", n(t.shared_tokens), true},
                         {"generated_tokens_total", "Tokens generated.", n(t.new_tokens), true},
                         {"passes_total", "Passes over the model.", n(t.passes), true},
                         {"preemptions_total", "Requests that had to give up their pages.", n(t.preemptions), true}});
}

// Notes the status that an answer goes out with.
class Counted final : public Reply {
 public:
  Counted(std::shared_ptr<Reply> to, Metrics& m, std::string route)
      : to_(std::move(to)), metrics_(m), route_(std::move(route)) {}
  void send(HttpAnswer a) override {
    metrics_.request(route_, a.status);
    to_->send(std::move(a));
  }
  void begin(int status, Headers headers) override {
    metrics_.request(route_, status);
    to_->begin(status, std::move(headers));
  }
  void write(std::string piece) override { to_->write(std::move(piece)); }
  void end(Headers trailers) override { to_->end(std::move(trailers)); }
  bool gone() const override { return to_->gone(); }
  void on_gone(std::function<void()> callback) override { to_->on_gone(std::move(callback)); }
  void on_sent(std::function<void()> callback) override { to_->on_sent(std::move(callback)); }

 private:
  std::shared_ptr<Reply> to_;
  Metrics& metrics_;
  std::string route_;
};

}  // namespace

void training(OperatorState& s, const HttpRequest& r, const std::string& rest, const std::shared_ptr<Reply>& reply) {
  if (!s.jobs) refuse_status(501, "server_error", "", "this server runs no training jobs: start it with --jobs FOLDER");
  auto wrong = [&] {
    refuse_status(405, "invalid_request_error", "method_not_allowed",
                  fmt::format("{} does not take {}", replace_invalid_utf8(r.path), r.method));
  };
  if (rest.empty()) {
    if (r.method == "POST") return reply->send(answer_json(s.jobs->create(r.body)));
    if (r.method != "GET") wrong();
    return reply->send(answer_json(s.jobs->list()));
  }
  const size_t slash = rest.find('/', 1);
  const std::string id = rest.substr(1, slash == std::string::npos ? slash : slash - 1),
                    verb = slash == std::string::npos ? "" : rest.substr(slash + 1);
  if (verb.empty()) {
    if (r.method != "GET") wrong();
    return reply->send(answer_json(s.jobs->get(id)));
  }
  if (verb == "cancel" || verb == "resume") {
    if (r.method != "POST") wrong();
    return reply->send(answer_json(verb == "cancel" ? s.jobs->cancel(id) : s.jobs->resume(id)));
  }
  if (rest[0] != '/' || verb != "events")
    refuse_status(404, "invalid_request_error", "not_found",
                  fmt::format("there is no {}", replace_invalid_utf8(r.path)));
  if (r.method != "GET") wrong();
  s.jobs->get(id);
  follow(
      s, reply, [jobs = s.jobs, id](size_t line) { return jobs->events(id, line); },
      [jobs = s.jobs, id] { return jobs->get(id); });
}

void Operator::handle(const HttpRequest& r, std::shared_ptr<Reply> out) {
  OperatorState& s = *s_;
  const std::string& p = r.path;
  const bool jobs = p.starts_with("/v1/training/");
  const auto reply = std::make_shared<Counted>(std::move(out), s.metrics,
                                               jobs                          ? "/v1/training/jobs"
                                               : p.starts_with("/coach")     ? "/coach"
                                               : p.starts_with("/v1/models") ? "/v1/models"
                                                                             : p);
  try {
    const int key = s.keys->find(r.header("Authorization"));
    if (p == "/health") {
      if (s.draining) return reply->send({503, {{"Content-Type", "application/json"}}, R"({"status":"draining"})"});
      return reply->send(answer_json(R"({"status":"ok"})"));
    }
    if (p == "/metrics")
      return reply->send({200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, metrics_text(s)});
    if (p == "/openapi.json") return reply->send(answer_json(openapi_document()));
    if (s.coach && (p == "/coach" || p.starts_with("/coach/"))) return coach(s, r, reply);
    if (!s.settings.upstream.empty() && !jobs) return forward(s, r, reply, s.keys->enter(key));
    if (p == "/v1/models") return reply->send(answer_json(models_json(s, nullptr)));
    if (p.starts_with("/v1/models/")) {
      const auto name = net::percent_decode(std::string_view(p).substr(11));  // clients encode the id: org%2Fmodel
      if (!name || !is_valid_utf8(*name))
        refuse_status(400, "invalid_request_error", "", "the model's name in the path is not encoded as URLs are");
      return reply->send(answer_json(models_json(s, &*name)));
    }
    if (jobs) return training(s, r, p.substr(std::string_view("/v1/training/jobs").size()), reply);
    if (s.served.names.empty())
      refuse_status(503, "server_error", "no_model", "this server serves no model: start it with --model");
    if (p == "/tokenizer_info") return reply->send(answer_json(tokenizer_info(s)));
    auto ticket = s.keys->enter(key);
    if (p == "/tokenize") return reply->send(answer_json(tokenize(s, r.body)));
    if (p == "/detokenize") return reply->send(answer_json(detokenize(s, r.body)));
    if (p == "/v1/chat/completions") return chat_completions(s, r, reply, std::move(ticket), key);
    if (p == "/v1/completions") return completions(s, r, reply, std::move(ticket), key);
    return embeddings(s, r, reply, std::move(ticket), key);
  } catch (const ApiError& e) {
    reply->send(to_answer(e));
  } catch (const Error& e) {
    reply->send(to_answer(error(400, "invalid_request_error", "", e.what())));
  } catch (const std::bad_alloc&) {
    reply->send(to_answer(error(503, "server_error", "", "out of memory")));
  } catch (const std::exception& e) {
    log::warn("{} {}: {}", r.method, p, e.what());
    reply->send(to_answer(error(500, "server_error", "", "an error inside the server")));
  }
}

}  // namespace mxt::serve
