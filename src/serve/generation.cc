#include "serve/generation.h"

#include <ctime>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"

namespace mxt::serve {

std::string dump(const OrderedJson& j) { return json_text(j); }

Generation::Generation(OperatorState& s, std::shared_ptr<Reply> reply, TicketPtr ticket, CommonFields common,
                       std::string model)
    : s_(s),
      common_(std::move(common)),
      model_(std::move(model)),
      created_(std::time(nullptr)),
      reply_(std::move(reply)),
      ticket_(std::move(ticket)),
      born_(std::chrono::steady_clock::now()) {}

std::string Generation::token_text(int32_t id) const { return replace_invalid_utf8(s_.served.tok->token_bytes(id)); }

void Generation::start(std::vector<infer::Request> requests, const HttpRequest& http) {
  when_paid(s_, http, reply_, std::move(requests), per_prompt_,
            [self = shared_from_this()](std::vector<infer::Request> r, std::shared_ptr<pay::Grant> grant) {
              self->reply_ = keeping(self->reply_, grant);
              self->paid_until_ = paid_until(grant);
              self->grant_ = std::move(grant);
              try {
                self->submit(std::move(r));
              } catch (...) {
                self->grant_ = nullptr;
                throw;
              }
            });
}

void Generation::submit(std::vector<infer::Request> requests) {
  const auto self = shared_from_this();
  std::vector<infer::Scheduler::Id> ids;
  {
    std::lock_guard lock(mutex_);
    left_ = requests.size();
    choices_.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Choice& c = choices_[i];
      c.index = i;
      c.text = TextStream(common_.stops, common_.keep_stop);
      c.prompt_tokens = static_cast<int64_t>(requests[i].prompt.size());
      c.last = born_;
      if (!requests[i].constraint) requests[i].tool = infer::make_calculator(*s_.served.tok);
      if (common_.skip_special) c.marks.emplace(*s_.served.tok);
      constrained_ = constrained_ || requests[i].constraint != nullptr;
      if (i % per_prompt_ == 0) prompt_tokens_ += c.prompt_tokens;
    }
    // The lock is held: no token is handled before all are in and the head is out.
    try {
      for (size_t i = 0; i < requests.size(); ++i) {
        infer::Sink sink;
        sink.token = [self, i](const infer::NewToken& t) { return self->token(i, t); };
        sink.prompt = [self, i](const std::vector<infer::NewToken>& p) {
          std::lock_guard lock(self->mutex_);
          self->on_prompt(self->choices_[i], p);
        };
        sink.done = [self, i](const infer::Outcome& o) { self->done(i, o); };
        ids.push_back(choices_[i].id = s_.served.scheduler->submit(std::move(requests[i]), std::move(sink)));
      }
    } catch (const Error& e) {
      left_ = SIZE_MAX;  // those that are in come to nothing
      for (auto id : ids) s_.served.scheduler->cancel(id);
      ApiError a;
      a.message = e.what();
      a.param = "prompt";
      if (a.message.find("context") != std::string::npos) a.code = "context_length_exceeded";
      throw a;
    }
    if (common_.stream) {
      begun_ = true;
      Headers head = {{"Content-Type", "text/event-stream; charset=utf-8"},
                      {"Cache-Control", "no-cache"},
                      {"X-Accel-Buffering", "no"}};
      if (grant_) {
        net::Headers paid = grant_->headers();
        if (paid.empty()) head.emplace_back("Trailer", "PAYMENT-RESPONSE");  // paid by what is used: known at the end
        for (auto& h : paid) head.push_back(std::move(h));
      }
      reply_->begin(200, std::move(head));
    }
  }
  s_.watch(self);
  reply_->on_gone([weak = weak_from_this()] {
    if (const auto g = weak.lock()) g->cancel_all();
  });
}

void Generation::cancel_all() {
  std::vector<infer::Scheduler::Id> ids;
  {
    std::lock_guard lock(mutex_);
    for (const Choice& c : choices_)
      if (!c.done) ids.push_back(c.id);
  }
  for (auto id : ids) s_.served.scheduler->cancel(id);
}

void Generation::expire_if_late(std::chrono::steady_clock::time_point now) {
  const bool late = std::chrono::duration<double>(now - born_).count() >= s_.settings.request_seconds;
  if (!late && now < paid_until_) return;
  {
    std::lock_guard lock(mutex_);
    (late ? late_ : unpaid_) = true;
  }
  cancel_all();
}

void Generation::write_event(const OrderedJson& j) { reply_->write("data: " + dump(j) + "\n\n"); }

OrderedJson Generation::usage() const {
  int64_t tokens = 0, shared = 0;
  for (const Choice& c : choices_) {
    tokens += c.tokens;
    if (c.index % per_prompt_ == 0) shared += c.shared;
  }
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", tokens},
          {"total_tokens", prompt_tokens_ + tokens},
          {"prompt_tokens_details", {{"cached_tokens", shared}}}};
}

void Generation::put_usage(OrderedJson& chunk) const {
  if (common_.each_usage)
    chunk["usage"] = usage();
  else if (common_.include_usage)
    chunk["usage"] = nullptr;
}

bool Generation::token(size_t i, const infer::NewToken& t) {
  std::lock_guard lock(mutex_);
  if (left_ == SIZE_MAX) return false;
  Choice& c = choices_[i];
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - c.last).count();
  c.last = now;
  if (c.tokens++ == 0)
    s_.metrics.first_token(since);
  else
    s_.metrics.between_tokens(since);
  const std::string bytes = s_.served.tok->token_bytes(t.id);
  const bool silent = common_.skip_special && s_.served.tok->is_special(t.id) && !(tags_ && is_tag(bytes));
  c.waiting.emplace_back(t, c.text.seen());
  std::string text;
  if (const std::string mark = c.marks ? c.marks->before(t.id) : ""; !mark.empty()) text = c.text.push(mark);
  text += silent ? c.text.push_control(bytes) : c.text.push(bytes);
  tell(c, false);
  return on_text(c, text) && !c.text.stopped();
}

// Tokens whose text has become certain; those of a stop string come to nothing.
void Generation::tell(Choice& c, bool all) {
  for (; !c.waiting.empty(); c.waiting.pop_front()) {
    const auto& [token, from] = c.waiting.front();
    const bool certain = from < c.text.given() || (from == c.text.given() && c.text.seen() == from);
    if (!certain && (!all || c.text.stopped())) break;
    if (c.text.stopped() && from >= c.text.given()) break;
    on_token(c, token);
  }
  if (c.text.stopped()) c.waiting.clear();
}

void Generation::done(size_t i, const infer::Outcome& o) {
  std::lock_guard lock(mutex_);
  if (left_ == SIZE_MAX) return;
  Choice& c = choices_[i];
  c.done = true;
  c.shared = o.shared_tokens;
  switch (o.finish) {
    case infer::Finish::kStop:
      c.reason = "stop";
      break;
    case infer::Finish::kLength:
      c.reason = "length";
      break;
    case infer::Finish::kCancelled:
      // What a permit does not last for is not made; what was made is sold.
      c.reason = late_ ? "timeout" : unpaid_ ? "length" : "cancelled";
      break;
    case infer::Finish::kFailed:
      c.reason = "error";
      failure_ = o.error;
      break;
  }
  try {
    std::string rest = c.marks ? c.text.push(c.marks->finish()) : "";
    rest += c.text.finish();
    tell(c, true);
    on_end(c, rest);
  } catch (const std::exception& e) {
    failure_ = e.what();
  }
  s_.metrics.finished(c.reason);
  if (--left_ > 0) return;
  try {
    finish();
  } catch (const std::exception& e) {
    give_up(e.what());
  }
}

void Generation::finish() {
  s_.metrics.whole(std::chrono::duration<double>(std::chrono::steady_clock::now() - born_).count());
  bool cancelled = false;
  for (const Choice& c : choices_) {
    ticket_->tokens += c.tokens;
    cancelled = cancelled || c.reason == "cancelled" || c.reason == "timeout";
  }
  ticket_->tokens += prompt_tokens_;
  ApiError e;
  // Where a grammar is at work it is the schema that was too much.
  if (!failure_.empty() && constrained_)
    e.message = failure_, e.param = "response_format";
  else if (!failure_.empty())
    e.status = 500, e.type = "server_error", e.message = failure_;
  else if (late_ && cancelled)
    e.status = 504, e.type = "server_error", e.code = "timeout",
    e.message = fmt::format("the request took longer than {} seconds", s_.settings.request_seconds);
  else if (cancelled)
    e.status = 503, e.type = "server_error", e.message = "the server is shutting down";
  if (!grant_) return deliver(e, {});
  // Paid by what was used: the answer's last part waits until that is settled. Who gets an error alone owes nothing.
  const auto grant = std::move(grant_);
  const net::Headers head = grant->headers();
  const bool good = e.message.empty(), gone = reply_->gone();
  grant->finish(good || begun_ || gone ? ticket_->tokens : 0, good && !gone,
                [self = shared_from_this(), e, head](net::Headers paid) {
                  if (!self->begun_) paid.insert(paid.end(), head.begin(), head.end());
                  try {
                    self->deliver(e, paid);
                  } catch (const std::exception& failure) {
                    self->give_up(failure.what());
                  }
                });
}

// An answer that cannot be put together is still answered.
void Generation::give_up(const char* why) {
  log::warn("{}: {}", model_, why);
  ApiError a;
  a.status = 500, a.type = "server_error", a.message = "an error inside the server";
  if (begun_) {
    reply_->write("data: " + to_json(a) + "\n\n");
    reply_->end();
  } else {
    reply_->send(to_answer(a));
  }
}

// `paid`: PAYMENT-RESPONSE, in the head of an answer that is whole; of a stream in its last event and its trailer.
void Generation::deliver(const ApiError& e, const net::Headers& paid) {
  if (begun_) {
    if (!e.message.empty()) {
      reply_->write("data: " + to_json(e) + "\n\n");
    } else if (common_.include_usage || !paid.empty()) {
      OrderedJson last = last_chunk();
      last["usage"] = usage();
      for (const auto& [name, value] : paid) last["payment"] = {{"header", name}, {"value", value}};
      write_event(last);
    }
    reply_->write("data: [DONE]\n\n");
    reply_->end(paid);
  } else if (!e.message.empty()) {
    HttpAnswer a = to_answer(e);
    a.headers.insert(a.headers.end(), paid.begin(), paid.end());
    reply_->send(std::move(a));
  } else {
    OrderedJson j = body();
    j["usage"] = usage();
    Headers head = {{"Content-Type", "application/json"}};
    head.insert(head.end(), paid.begin(), paid.end());
    reply_->send({200, std::move(head), dump(j)});
  }
}

}  // namespace mxt::serve
