// One service that something is published to, over HTTP.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "net/http.h"

namespace mxt::publish {

// A service's address without '/' at its end: the variable's `override` where it is not empty, else what the recipe's
// `key` says. kBadInput, naming the one that it came from, where it is no http or https URL; a password in it is not
// repeated.
std::string service_url(const std::string& given, const std::string& key, const std::string& override = "",
                        const std::string& variable = "");

// What a service says, with each of these secrets blotted out: it may say back what it was told.
std::string without_secrets(const std::vector<std::string>& secrets, std::string text);

// Its answers are hostile: small, within a time, never from another host, and never a page in the place of an answer to
// what was sent.
class Service {
 public:
  // `name` for messages: "Kubo at http://127.0.0.1:5001".
  Service(std::string name, const net::HttpOptions& options) : name_(std::move(name)), http_(options) {}

  // Every status is a return value. kBadInput where it cannot be reached, answers without end, or does not end: what
  // was done is kept, and the same command goes on.
  net::HttpResponse send(net::HttpRequest request);
  // The JSON of a 2xx answer, else kBadInput with what the service says of it.
  Json json(const net::HttpRequest& request);
  [[noreturn]] void refuse(const net::HttpResponse& r, const std::string& url) const;

 private:
  std::string name_;
  net::HttpClient http_;
};

}  // namespace mxt::publish
