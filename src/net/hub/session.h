// Calls that change something at a Hub: its token, its answers, its refusals.
#pragma once

#include <string>

#include "base/json.h"
#include "net/http.h"
#include "net/hub.h"
#include "net/url.h"

namespace mxt::net {

class HubSession {
 public:
  explicit HubSession(const HubSettings& settings);
  const std::string& base() const { return base_; }
  // The token goes to the endpoint's own origin and nowhere else; redirects to other hosts are answers.
  // Addresses that a store signed want none of it.
  HttpResponse send(HttpRequest request, bool with_token = true);
  HttpResponse post_json(const std::string& url, const Json& body, bool repeatable, Headers headers = {});
  // The JSON of a 2xx answer, else refuse().
  Json json(const HttpResponse& r, const std::string& what) const;
  [[noreturn]] void refuse(const HttpResponse& r, const std::string& what) const;
  // Before a call is tried again: `seconds`, or what the answer's Retry-After asks for. kInterrupted where the program
  // is asked to end; refuse() where it asks for more than two minutes.
  void wait(double seconds) const;
  void wait_as_asked(const HttpResponse& r, double seconds, const std::string& what) const;

 private:
  std::string words(const HttpResponse& r) const;  // ": why", as it says itself; "" where it does not
  const HubSettings& settings_;
  Url endpoint_;
  std::string base_;
  HttpClient http_;
};

}  // namespace mxt::net
