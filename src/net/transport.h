// One exchange with a server over a connection that is kept for the next: plain or TLS, direct or through an HTTP
// proxy. http.cc's rules (redirects, retries, limits) stand on it. Boost's headers stay in transport.cc alone: they
// cost half a minute to compile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/url.h"

namespace mxt::net {

// How an exchange ended. `why` is the reason in the library's words.
struct Exchange {
  enum class End {
    kDone,
    kNeverSent,    // no connection: the request was not seen by anyone
    kBroken,       // the connection ended or went silent underway
    kTooSlow,      // its answer came a few bytes at a time: asked again it would do the same
    kCertificate,  // the server's certificate is not trusted: nothing was sent
    kTooLarge,     // its headers are over the limit
    kCancelled,    // HttpOptions::cancel
    kStopped,      // a callback said false
  };
  End end = End::kDone;
  std::string why;
  std::string remedy = {};  // of kCertificate
  Headers trailers = {};    // fields that came after the body, but for those that the head has
};

// What an answer is handed to, in this order; false ends the exchange. `headers` once for the answer that is no 1xx.
struct AnswerSink {
  std::function<bool(int status, Headers headers)> headers;
  std::function<bool(std::string_view)> body;
};

class Transport {
 public:
  // `options` must outlive this object.
  explicit Transport(const HttpOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  // `r` gives header fields, range, body and times; `url` and `method` are those of this hop; `seconds` are left of the
  // whole time (0: no limit). Secrets (Authorization, Cookie) are sent where `with_secrets`.
  Exchange run(const HttpRequest& r, double seconds, const Url& url, const std::string& method, bool with_body,
               bool with_secrets, const AnswerSink& sink);

 private:
  struct State;
  std::unique_ptr<State> s_;
};

// ASCII letters of any case.
bool same_word(std::string_view a, std::string_view b);

// Whether NO_PROXY's list (commas; names match themselves and what lies below them; * is all) holds the host.
bool goes_direct(std::string_view no_proxy, std::string_view host);

// localhost, what lies below it, and loopback addresses: `host` without brackets.
bool is_this_machine(std::string_view host);

}  // namespace mxt::net
