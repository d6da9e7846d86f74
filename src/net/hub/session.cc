#include "net/hub/session.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wait.h"
#include "net/hub/internal.h"
#include "net/patience.h"

namespace mxt::net {
namespace {

constexpr int kMostSeconds = 120;  // that a Hub may ask to be waited for

}  // namespace

HubSession::HubSession(const HubSettings& settings)
    : settings_(settings),
      endpoint_(hub_endpoint(settings)),
      base_(endpoint_.text()),
      http_(hub_http_options(settings)) {
  while (base_.ends_with('/')) base_.pop_back();
}

HttpResponse HubSession::send(HttpRequest q, bool with_token) {
  const auto url = parse_url(q.url);
  if (!url) fail_input("{}: names an address that is none: \"{}\"", base_, printable(shown_url(q.url)));
  const std::string authorization = with_token ? hub_authorization(settings_, endpoint_) : "";
  if (!authorization.empty() && url->same_origin(endpoint_)) q.headers.emplace_back("Authorization", authorization);
  q.leave_origin = false;
  give_time(q);
  return http_.send(q);
}

HttpResponse HubSession::post_json(const std::string& url, const Json& body, bool repeatable, Headers headers) {
  HttpRequest q;
  q.method = "POST";
  q.url = url;
  q.headers = std::move(headers);
  if (!find_header(q.headers, "Content-Type")) q.headers.emplace_back("Content-Type", "application/json");
  q.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  q.repeatable = repeatable;
  return send(q);
}

Json HubSession::json(const HttpResponse& r, const std::string& what) const {
  if (r.status < 200 || r.status >= 300) refuse(r, what);
  return parse_json(r.body, r.url);
}

std::string HubSession::words(const HttpResponse& r) const {
  std::string why;
  if (const std::string* m = r.header("X-Error-Message")) why = *m;
  if (const Json j = Json::parse(r.body, nullptr, false); why.empty() && j.is_object())
    for (const char* key : {"error", "message"})
      if (why.empty() && j.contains(key) && j[key].is_string()) why = j[key].get<std::string>();
  return why.empty() ? "" : ": " + printable(why.substr(0, 300));
}

void HubSession::refuse(const HttpResponse& r, const std::string& what) const {
  const std::string why = words(r);
  if (r.status == 401)
    fail_input("{}: HF_TOKEN is not valid there{}: set a token that may write (settings, access tokens)", what, why);
  if (r.status == 403) fail_input("{}: HF_TOKEN may not write there{}: use a token with that right", what, why);
  if (r.status >= 300 && r.status < 400) fail_input("{}: is redirected elsewhere, which is not followed", what);
  if (r.status == 409 || r.status == 412)
    fail_input("{}: {} answers {}{}: another change of the repository is under way there: the same command goes on",
               what, base_, r.status, why);
  fail_input("{}: {} answers {}{}", what, base_, r.status, why);
}

void HubSession::wait(double seconds) const {
  wait_for(base_, seconds * settings_.retry_base_seconds * 2, settings_.cancel);
}

void HubSession::wait_as_asked(const HttpResponse& r, double seconds, const std::string& what) const {
  int64_t asked = 0;
  if (const std::string* after = r.header("Retry-After"))
    std::from_chars(after->data(), after->data() + after->size(), asked);
  if (asked > kMostSeconds)
    fail_input("{}: {} answers {}{}; it asks to be left alone for {} s: the same command goes on then", what, base_,
               r.status, words(r), asked);
  if (asked <= 0) return wait(seconds);
  log::info("{}: answers {}{}, and asks to be left alone for {} s; Ctrl-C ends the wait, what was done is kept", base_,
            r.status, words(r), asked);
  wait_for(base_, static_cast<double>(asked), settings_.cancel);
}

}  // namespace mxt::net
