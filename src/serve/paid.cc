#include "serve/paid.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace mxt::serve {
namespace {

pay::Ask ask_of(const OperatorState& s, const HttpRequest& http, const std::vector<infer::Request>& requests,
                size_t per_prompt) {
  pay::Ask ask;
  if (const std::string* h = http.header("PAYMENT-SIGNATURE")) ask.payment_v2 = *h;
  if (const std::string* h = http.header("X-PAYMENT")) ask.payment_v1 = *h;
  const std::string* host = http.header("Host");
  ask.resource = "http://" + (host && is_valid_utf8(*host) ? *host : std::string("localhost")) + http.path;
  Blake3 digest;
  digest.update(http.method + " " + http.path + "?" + http.query + "\n");
  digest.update(http.body);
  ask.request = digest.hex();
  const int64_t context = s.served.model->positions();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto prompt = static_cast<int64_t>(requests[i].prompt.size());
    if (i % per_prompt == 0) ask.prompt_tokens += prompt;
    if (!requests[i].hidden)
      ask.most_tokens += std::min(std::max<int64_t>(requests[i].max_tokens, 0), std::max<int64_t>(context - prompt, 0));
  }
  return ask;
}

constexpr size_t kMostKept = 1 << 20;  // bytes of an answer; a longer one is not kept

class Kept final : public Reply {
 public:
  Kept(std::shared_ptr<Reply> to, pay::Keeper keeper) : to_(std::move(to)), keeper_(std::move(keeper)) {}
  void send(HttpAnswer a) override {
    keep({a.status, a.headers, a.body});
    to_->send(std::move(a));
  }
  void begin(int status, Headers headers) override {
    so_far_ = {status, headers, ""};
    to_->begin(status, std::move(headers));
  }
  void write(std::string piece) override {
    if (so_far_.body.size() <= kMostKept) so_far_.body += piece;
    to_->write(std::move(piece));
  }
  void end(Headers trailers) override {
    std::erase_if(so_far_.headers, [](const auto& h) { return h.first == "Trailer"; });
    so_far_.headers.insert(so_far_.headers.end(), trailers.begin(), trailers.end());
    keep(so_far_);
    to_->end(std::move(trailers));
  }
  bool gone() const override { return to_->gone(); }
  void on_gone(std::function<void()> callback) override { to_->on_gone(std::move(callback)); }
  void on_sent(std::function<void()> callback) override { to_->on_sent(std::move(callback)); }

 private:
  // Before its last byte goes out.
  void keep(const pay::Answer& a) {
    if (a.status != 200) return;
    if (a.body.size() <= kMostKept) keeper_.made(a);
    if (keeper_.sent) to_->on_sent(std::move(keeper_.sent));
  }
  std::shared_ptr<Reply> to_;
  pay::Keeper keeper_;
  pay::Answer so_far_;
};

void begin(const std::shared_ptr<Reply>& reply, std::vector<infer::Request> requests,
           const std::shared_ptr<pay::Grant>& grant, const Granted& granted) {
  ApiError error;
  try {
    return granted(std::move(requests), grant);
  } catch (const ApiError& e) {
    error = e;
  } catch (const std::exception& e) {
    error.status = 500, error.type = "server_error", error.message = e.what();
  }
  grant->finish(0, false, [reply, error](const net::Headers&) { reply->send(to_answer(error)); });
}

}  // namespace

std::shared_ptr<Reply> keeping(std::shared_ptr<Reply> reply, const std::shared_ptr<pay::Grant>& grant) {
  pay::Keeper keeper = grant ? grant->keeper() : pay::Keeper{};
  return keeper.made ? std::make_shared<Kept>(std::move(reply), std::move(keeper)) : reply;
}

std::chrono::steady_clock::time_point paid_until(const std::shared_ptr<pay::Grant>& grant) {
  const auto end = grant ? grant->end() : std::nullopt;
  if (!end) return std::chrono::steady_clock::time_point::max();
  return std::chrono::steady_clock::now() + (*end - std::chrono::system_clock::now());
}

void when_paid(OperatorState& s, const HttpRequest& http, const std::shared_ptr<Reply>& reply,
               std::vector<infer::Request> requests, size_t per_prompt, Granted granted) {
  s.check_room(static_cast<int64_t>(requests.size()));
  if (!s.settings.meter) return granted(std::move(requests), nullptr);
  for (const infer::Request& r : requests) s.check_length(r.prompt, "prompt");  // before anybody pays for it
  const pay::Ask ask = ask_of(s, http, requests, per_prompt);
  const auto kept = std::make_shared<std::vector<infer::Request>>(std::move(requests));
  s.settings.meter->admit(
      ask,
      [reply](const pay::Answer& r) {
        if (r.sent) reply->on_sent(r.sent);
        reply->send({r.status, r.headers, r.body});
      },
      [reply, kept, granted = std::move(granted)](const std::shared_ptr<pay::Grant>& grant) {
        begin(reply, std::move(*kept), grant, granted);
      });
}

}  // namespace mxt::serve
