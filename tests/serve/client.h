// One request to a server under test, and its answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "net/http.h"

namespace mxt::serve {

struct Answer {
  int status = 0;
  std::string body;  // streamed parts too
  net::HttpResponse raw;
  nlohmann::json json() const { return nlohmann::json::parse(body); }
};

// Bodies are JSON unless a header says otherwise. Nothing is tried twice, no redirect followed.
inline Answer ask(const std::string& url, const std::string& method, const std::string& path, const std::string& body,
                  net::Headers headers) {
  net::HttpClient client;
  net::HttpRequest r;
  r.method = method;
  r.url = url + path;
  r.body = body;
  r.headers = std::move(headers);
  if (method == "POST" && !net::find_header(r.headers, "Content-Type"))
    r.headers.emplace_back("Content-Type", "application/json");
  r.retries = r.redirects = 0;
  Answer a;
  std::string streamed;
  r.on_data = [&](std::string_view d) { streamed += d; };
  a.raw = client.send(r);
  a.status = a.raw.status;
  a.body = a.raw.body + streamed;
  return a;
}

}  // namespace mxt::serve
