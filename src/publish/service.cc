#include "publish/service.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "net/patience.h"
#include "net/url.h"

namespace mxt::publish {
namespace {

constexpr uint64_t kMaxAnswer = 8u << 20;

}  // namespace

std::string service_url(const std::string& given, const std::string& key, const std::string& override,
                        const std::string& variable) {
  std::string url = override.empty() ? given : override;
  while (url.ends_with('/')) url.pop_back();
  net::public_url(url, override.empty() ? key : variable);
  return url;
}

std::string without_secrets(const std::vector<std::string>& secrets, std::string text) {
  for (const std::string& secret : secrets)
    if (secret.size() >= 4)
      for (size_t at = 0; (at = text.find(secret, at)) != text.npos; at += 3) text.replace(at, secret.size(), "***");
  return text;
}

net::HttpResponse Service::send(net::HttpRequest r) {
  r.leave_origin = false;
  r.max_bytes = std::min(r.max_bytes, kMaxAnswer);
  net::give_time(r);
  try {
    return http_.send(r);
  } catch (const Error& e) {
    if (e.code() == Exit::kInterrupted) throw;
    fail_input("{}: {}; what was done is kept, the same command goes on", name_, e.what());
  }
}

Json Service::json(const net::HttpRequest& request) {
  const net::HttpResponse r = send(request);
  if (r.status < 200 || r.status >= 300) refuse(r, request.url);
  try {
    return parse_json(r.body, request.url);
  } catch (const Error& e) {
    fail_input("{}: its answer is no JSON: {}", name_, e.what());
  }
}

void Service::refuse(const net::HttpResponse& r, const std::string& url) const {
  if (r.status >= 300 && r.status < 400) {
    const std::string* to = r.header("Location");
    fail_input("{}: answers {} with a redirect ({}){}, which is not followed: write the address that answers itself",
               name_, url, r.status, to ? " to " + printable(net::shown_url(*to).substr(0, 200)) : "");
  }
  std::string why;
  if (const Json j = Json::parse(r.body, nullptr, false); j.is_object()) {
    for (const char* key : {"Message", "message", "error", "errorReason", "detail"})
      if (why.empty() && j.contains(key) && j[key].is_string()) why = j[key].get<std::string>();
  } else {
    why = r.body;
  }
  why = printable(std::string_view(why).substr(0, 300));
  fail_input("{}: answers {} with {}{}", name_, url, r.status, why.empty() ? "" : ": " + why);
}

}  // namespace mxt::publish
