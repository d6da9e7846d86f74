// HTTP client: one connection-keeping client a thread. TLS is verified, nothing is read from the environment.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mxt::net {

using Headers = std::vector<std::pair<std::string, std::string>>;

// A piece of a body that is sent from disk: `text`, then `bytes` of `file` from `offset`.
struct BodyPart {
  std::string text, file;
  uint64_t offset = 0, bytes = 0;
};

struct HttpRequest {
  std::string method = "GET";  // GET, HEAD, POST, PUT, PATCH, DELETE
  std::string url;             // USER:PASSWORD@ in it is sent as Basic authorization, unless `headers` hold one
  Headers headers;             // Authorization and Cookie are left out once a redirect leaves the first origin
  std::string body;
  std::vector<BodyPart> parts;                     // instead of `body`, one after another; their length is announced
  std::optional<uint64_t> range_begin, range_end;  // bytes begin–end, end included

  double connect_seconds = 10;  // to connect
  double idle_seconds = 30;     // without a byte
  double total_seconds = 0;     // 0 = no limit
  double answer_seconds = 0;    // from an answer's first byte to its end, one more for each 64 KiB; 0 = no limit
  int redirects = 5;            // followed; 0 = a redirect is the answer. https never goes on to http
  bool leave_origin = true;     // false: a redirect to another origin, or that makes a GET of what sends, is the answer
  int retries = 4;              // after failed connections and 408, 429, 500, 502, 503, 504, for GET and HEAD; waits
                                // 0.5, 1, 2 … s or what Retry-After asks for (at most 30)
  bool repeatable = false;      // sending it twice does what sending it once does: retried as GET is
  uint64_t max_bytes = 64u << 20;  // of the body; more is an error
  // Takes a 2xx body in pieces instead of `body` of the response; not called again for a retry once it has seen data.
  // May throw: the transfer ends and the exception goes to the caller. Called after on_headers.
  std::function<void(std::string_view)> on_data;
  // Status and headers of the answer that counts, before its body. May throw.
  std::function<void(int status, const Headers&)> on_headers;
};

struct HttpResponse {
  int status = 0;
  Headers headers;  // then the trailers, those that say what the head did not
  std::string body;
  std::string url;  // of the answer, after redirects

  const std::string* header(std::string_view name) const;  // any case; the last one; null where absent
};

// As curl reads https_proxy, http_proxy and no_proxy: each http://[USER:PASSWORD@]HOST:PORT, empty = none. This machine
// itself (localhost, 127.0.0.0/8, ::1) is always reached directly.
struct Proxies {
  std::string https, http;  // for https:// and for http:// addresses
  std::string none;         // hosts that are reached directly: names and what lies below them, commas; * = all
};

struct HttpOptions {
  std::string user_agent = "mindxtrain";
  std::string ca_file;  // empty = the system's authorities
  Proxies proxies;
  double retry_base_seconds = 0.5;
  const std::atomic<bool>* cancel = nullptr;  // set: the transfer ends with kInterrupted
};

class HttpClient {
 public:
  explicit HttpClient(HttpOptions options = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  // Every status is a return value. Errors: kMissing where the server cannot be reached (Unreachable) or trusted,
  // kBadInput for a URL that is none, a body or headers over the limit, a redirect that goes nowhere or round in
  // circles.
  HttpResponse send(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> s_;
};

const std::string* find_header(const Headers& headers, std::string_view name);

}  // namespace mxt::net
