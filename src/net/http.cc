#include "net/http.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait.h"
#include "net/transport.h"
#include "net/unreachable.h"
#include "net/url.h"

namespace mxt::net {
namespace {

constexpr uint64_t kMaxErrorBody = 1 << 20;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool is_transient(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// One transfer: what the sinks of an exchange share.
struct Transfer {
  const HttpRequest* request = nullptr;
  int status = 0;
  Headers headers;
  std::string body;
  uint64_t body_bytes = 0;
  bool streamed = false, announced = false;
  std::string refusal;  // why we stopped it
  std::exception_ptr thrown;

  // True where this status is final: no redirect or retry will follow it.
  std::function<bool(int, const Headers&)> is_final;
};

bool announce(Transfer& t) {
  if (t.announced) return true;
  t.announced = true;
  if (!t.is_final(t.status, t.headers) || !t.request->on_headers) return true;
  try {
    t.request->on_headers(t.status, t.headers);
    return true;
  } catch (...) {
    t.thrown = std::current_exception();
    return false;
  }
}

bool take_body(Transfer& t, std::string_view data) {
  const bool good = t.status >= 200 && t.status < 300;
  const uint64_t limit = good ? t.request->max_bytes : std::min<uint64_t>(t.request->max_bytes, kMaxErrorBody);
  t.body_bytes += data.size();
  if (t.body_bytes > limit) {
    if (!good) return true;  // enough of an error's text is enough
    t.refusal = fmt::format("its answer is larger than {}", human_bytes(limit));
    return false;
  }
  if (!good || !t.request->on_data) {
    t.body.append(data);
    return true;
  }
  t.streamed = true;
  try {
    t.request->on_data(data);
    return true;
  } catch (...) {
    t.thrown = std::current_exception();
    return false;
  }
}

// A wait that a person would take for a program that hangs.
void say_waiting(const std::string& origin, int status, double seconds) {
  constexpr double kNoticed = 5;
  if (seconds >= kNoticed)
    log::info("{}: answers {}, and is asked again in {:.0f} s; Ctrl-C ends the wait, what was done is kept", origin,
              status, seconds);
}

bool is_header_text(std::string_view s) {
  for (char c : s)
    if (c == '\r' || c == '\n' || c == '\0') return false;
  return true;
}

}  // namespace

const std::string* find_header(const Headers& headers, std::string_view name) {
  for (auto h = headers.rbegin(); h != headers.rend(); ++h)
    if (same_word(h->first, name)) return &h->second;
  return nullptr;
}

const std::string* HttpResponse::header(std::string_view name) const { return find_header(headers, name); }

struct HttpClient::State {
  HttpOptions options;
  std::unique_ptr<Transport> transport;

  double delay(int attempt, const Headers& headers) const {
    double seconds = options.retry_base_seconds * std::pow(2.0, attempt);
    if (const std::string* after = find_header(headers, "Retry-After")) {
      int asked = 0;
      if (std::from_chars(after->data(), after->data() + after->size(), asked).ec == std::errc() && asked > 0)
        seconds = std::max(seconds, double(asked));
    }
    return std::min(seconds, 30.0);
  }
};

HttpClient::HttpClient(HttpOptions options) : s_(std::make_unique<State>()) {
  s_->options = std::move(options);
  s_->transport = std::make_unique<Transport>(s_->options);
}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::send(const HttpRequest& r) {
  const std::optional<Url> first = parse_url(r.url);
  if (!first) fail_input("\"{}\" is not an http or https URL", shown_url(r.url));
  for (const auto& [name, value] : r.headers)
    if (!is_header_text(name) || !is_header_text(value))
      fail_input("header \"{}\" holds a line break", name.substr(0, 60));
  Url url = *first;
  std::string method = r.method;
  bool with_body = method == "POST" || method == "PUT" || method == "PATCH", with_secrets = true;
  int redirects = 0, attempt = 0;
  const auto began = std::chrono::steady_clock::now();
  // The whole time is that of all tries: a service that gives a byte now and then is not asked over and over.
  const auto seconds_left = [&] {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - began;
    return r.total_seconds - gone.count();
  };
  const auto time_left = [&](double wait) { return r.total_seconds == 0 || wait < seconds_left(); };

  const auto becomes_get = [&](int status) {
    return method != "GET" && method != "HEAD" &&
           (status == 303 || ((status == 301 || status == 302) && method == "POST"));
  };
  // The redirect that this answer asks for, where it is to be followed.
  const auto next_of = [&](int status, const Headers& headers) -> std::optional<Url> {
    const std::string* location = find_header(headers, "Location");
    if (!is_redirect(status) || !location || r.redirects == 0) return std::nullopt;
    const auto next = resolve_url(url, *location);
    if (!next)
      fail_input("{}: is redirected to \"{}\", which is no http or https URL", url.text(), shown_url(*location));
    if (!r.leave_origin && (!next->same_origin(url) || becomes_get(status))) return std::nullopt;
    if (url.scheme == "https" && next->scheme == "http")
      fail_input("{}: is redirected from https to http, which is not followed", url.text());
    return next;
  };

  for (;;) {
    Transfer t;
    t.request = &r;
    const bool repeatable = (method == "GET" || method == "HEAD" || r.repeatable) && attempt < r.retries;
    bool again = false;
    t.is_final = [&](int status, const Headers& headers) {
      again = is_transient(status) && repeatable && time_left(s_->delay(attempt, headers));
      return !again &&
             !(is_redirect(status) && find_header(headers, "Location") && r.redirects > 0 && next_of(status, headers));
    };
    const AnswerSink sink{.headers =
                              [&](int status, Headers headers) {
                                t.status = status;
                                t.headers = std::move(headers);
                                return announce(t);
                              },
                          .body = [&](std::string_view data) { return take_body(t, data); }};
    const Exchange e = s_->transport->run(r, r.total_seconds == 0 ? 0 : std::max(seconds_left(), 0.001), url, method,
                                          with_body, with_secrets, sink);
    if (t.thrown) std::rethrow_exception(t.thrown);
    if (e.end == Exchange::End::kTooLarge) t.refusal = "its headers are over the limit";
    if (!t.refusal.empty()) fail_input("{}: {}", url.text(), t.refusal);
    if (e.end == Exchange::End::kCancelled) throw Error(Exit::kInterrupted, url.text() + ": interrupted");
    if (e.end != Exchange::End::kDone) {
      const bool certificate = e.end == Exchange::End::kCertificate, slow = e.end == Exchange::End::kTooSlow;
      if (!t.streamed && !certificate && !slow && attempt < r.retries &&
          (repeatable || e.end == Exchange::End::kNeverSent) && time_left(s_->delay(attempt, {}))) {
        wait_for(url.origin(), s_->delay(attempt++, {}), s_->options.cancel);
        continue;
      }
      if (certificate)
        fail_missing("{}: its certificate is not trusted ({}): nothing was sent; {}", url.origin(), e.why, e.remedy);
      throw Unreachable(slow ? fmt::format("{}: answers too slowly ({})", url.origin(), e.why)
                             : fmt::format("{}: cannot be reached ({}): check the network", url.origin(), e.why));
    }
    if (again) {
      const double seconds = s_->delay(attempt++, t.headers);
      say_waiting(url.origin(), t.status, seconds);
      wait_for(url.origin(), seconds, s_->options.cancel);
      continue;
    }
    if (const auto next = next_of(t.status, t.headers)) {
      if (++redirects > r.redirects) fail_input("{}: more than {} redirects", first->text(), r.redirects);
      if (!next->same_origin(*first)) with_secrets = false;
      if (becomes_get(t.status)) {
        method = "GET";
        with_body = false;
      }
      url = *next;
      url.user = first->user;  // what a server writes there is not ours; sent where `with_secrets`
      continue;
    }
    t.headers.insert(t.headers.end(), e.trailers.begin(), e.trailers.end());
    return {t.status, std::move(t.headers), std::move(t.body), url.text()};
  }
}

}  // namespace mxt::net
