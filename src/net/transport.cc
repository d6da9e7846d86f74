#include "net/transport.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "net/body.h"

namespace mxt::net {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using End = Exchange::End;

constexpr uint32_t kMaxHeaderBytes = 256 << 10;
constexpr size_t kPiece = 64 << 10;          // of a body, at once
constexpr double kSlowestAnswer = 64 << 10;  // bytes a second, of one that has begun

// Where distributions keep the authorities that they trust, for an OpenSSL that was built for another one.
constexpr const char* kAuthorities[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/ssl/cert.pem",
};

struct Connection {
  explicit Connection(asio::io_context& io) : socket(io) {}
  std::string key;  // scheme, host, port, and the proxy where there is one
  tcp::socket socket;
  std::unique_ptr<ssl::stream<tcp::socket&>> tls;
  boost::beast::flat_buffer buffer;

  template <typename F>
  auto with(F&& f) {
    return tls ? f(*tls) : f(socket);
  }
};

struct Proxy {
  std::string host, port, authorization;  // of Proxy-Authorization; "" where none is wanted
};

Proxy parse_proxy(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme != std::string::npos && !same_word(text.substr(0, scheme), "http"))
    fail_input("the proxy \"{}\": only http:// proxies are spoken with", text.substr(0, scheme + 3));
  const std::string rest = scheme == std::string::npos ? text : text.substr(scheme + 3);
  const auto url = parse_url("http://" + rest);
  if (!url) fail_input("the proxy is no http://HOST:PORT (https_proxy, http_proxy)");
  const std::string where = rest.substr(rest.rfind('@') + 1);  // npos + 1 is 0
  const size_t bracket = where.rfind(']');
  const bool port = where.find(':', bracket == std::string::npos ? 0 : bracket) != std::string::npos;
  return {url->host, port ? std::to_string(url->port) : "1080", url->basic_authorization()};  // 1080: as curl
}

std::string bare(const std::string& host) {  // an IPv6 address without its brackets
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::string host_field(const Url& u) {
  const bool usual = u.port == (u.scheme == "https" ? 443 : 80);
  return usual ? u.host : fmt::format("{}:{}", u.host, u.port);
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

bool goes_direct(std::string_view no_proxy, std::string_view host) {
  for (std::string_view entry : split(no_proxy, ',')) {
    entry = trim(entry);
    if (entry == "*") return true;
    if (entry.starts_with('.')) entry.remove_prefix(1);
    if (entry.empty() || entry.size() > host.size()) continue;
    if (!same_word(host.substr(host.size() - entry.size()), entry)) continue;
    if (entry.size() == host.size() || host[host.size() - entry.size() - 1] == '.') return true;
  }
  return false;
}

bool is_this_machine(std::string_view host) {
  if (same_word(host, "localhost") || same_word(host, "localhost.") || goes_direct("localhost", host)) return true;
  error_code ec;
  const auto address = asio::ip::make_address(host, ec);
  return !ec && (address.is_loopback() || address.is_unspecified());
}

struct Transport::State {
  const HttpOptions& options;
  asio::io_context io;
  ssl::context tls{ssl::context::tls_client};
  bool authorities = false;  // any were found
  std::unique_ptr<Connection> kept;
  Clock::time_point total_end;

  explicit State(const HttpOptions& o) : options(o) {
    tls.set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    tls.set_verify_mode(ssl::verify_peer);
    error_code ec;
    if (!options.ca_file.empty()) {
      tls.load_verify_file(options.ca_file, ec);
      authorities = !ec;
      return;
    }
    tls.set_default_verify_paths(ec);  // OpenSSL's own, SSL_CERT_FILE and SSL_CERT_DIR
    authorities = sk_X509_OBJECT_num(X509_STORE_get0_objects(SSL_CTX_get_cert_store(tls.native_handle()))) > 0;
    for (const char* file : kAuthorities) {
      if (authorities || !std::filesystem::exists(file, ec)) continue;
      tls.load_verify_file(file, ec);
      authorities = !ec;
    }
  }

  bool cancelled() const { return options.cancel && options.cancel->load(std::memory_order_relaxed); }

  // Starts an operation and runs it to its end, at most `seconds` (0: for ever) and never past the request's whole
  // time. `close` makes it end early, as it is where `late` says so, which is asked all the while.
  struct Wait {
    End end = End::kDone;
    error_code ec;
  };
  template <typename Start, typename Close>
  Wait wait(double seconds, Start&& start, Close&& close, const std::function<bool()>& late = {}) {
    struct Shared {
      bool done = false;
      error_code ec;
    };
    const auto shared = std::make_shared<Shared>();
    start([shared](error_code ec, auto&&...) {
      shared->ec = ec;
      shared->done = true;
    });
    auto until = total_end;
    if (seconds > 0)
      until = std::min(
          until, Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
    while (!shared->done) {
      io.restart();
      io.run_one_for(std::chrono::milliseconds(50));
      if (shared->done) break;
      const bool stop = cancelled();
      if (!stop && Clock::now() < until && !(late && late())) continue;
      close();
      for (int i = 0; !shared->done && i < 40; ++i) {  // its buffers must not be touched after this
        io.restart();
        io.run_one_for(std::chrono::milliseconds(50));
      }
      return {stop ? End::kCancelled : End::kBroken, asio::error::timed_out};
    }
    return {End::kDone, shared->ec};
  }

  Exchange failed(const Wait& w, End end) const {
    return {w.end == End::kCancelled ? End::kCancelled : end,
            w.ec == asio::error::timed_out ? "time is out" : w.ec.message()};
  }

  // A request that the proxy answers itself: 200, or why not.
  Exchange tunnel(Connection& c, const Url& url, const Proxy& proxy, double seconds) {
    http::request<http::empty_body> ask{http::verb::connect, fmt::format("{}:{}", url.host, url.port), 11};
    ask.set(http::field::host, ask.target());
    ask.set(http::field::user_agent, options.user_agent);
    if (!proxy.authorization.empty()) ask.set(http::field::proxy_authorization, proxy.authorization);
    const auto close = [&] { close_socket(c); };
    if (const Wait w = wait(seconds, [&](auto h) { http::async_write(c.socket, ask, std::move(h)); }, close); w.ec)
      return failed(w, End::kNeverSent);
    http::response_parser<http::empty_body> answer;
    answer.skip(true);
    if (const Wait w = wait(
            seconds, [&](auto h) { http::async_read_header(c.socket, c.buffer, answer, std::move(h)); }, close);
        w.ec)
      return failed(w, End::kNeverSent);
    if (const unsigned status = answer.get().result_int(); status / 100 != 2)
      return {End::kNeverSent,
              fmt::format("its proxy {}:{} answers {}{}", proxy.host, proxy.port, status,
                          status == 407 ? ": it wants https_proxy=http://USER:PASSWORD@HOST:PORT" : "")};
    return {};
  }

  static void close_socket(Connection& c) {
    error_code ignored;
    c.socket.close(ignored);
  }

  Exchange connect(Connection& c, const Url& url, const std::optional<Proxy>& proxy, double seconds) {
    const auto resolver = std::make_shared<tcp::resolver>(io);
    const auto found = std::make_shared<tcp::resolver::results_type>();
    const std::string host = proxy ? bare(proxy->host) : bare(url.host),
                      port = proxy ? proxy->port : std::to_string(url.port);
    // Who is not there: the remedy is another for a proxy (HTTPS_PROXY) than for the network.
    const auto not_there = [&](const Wait& wait) {
      Exchange e = failed(wait, End::kNeverSent);
      if (proxy) e.why = fmt::format("its proxy {}:{}: {}", proxy->host, proxy->port, e.why);
      return e;
    };
    Wait w = wait(
        seconds,
        [&](auto h) {
          resolver->async_resolve(host, port,
                                  [resolver, found, h](error_code ec, tcp::resolver::results_type r) mutable {
                                    *found = std::move(r);
                                    h(ec);
                                  });
        },
        [&] { resolver->cancel(); });
    if (w.ec) return not_there(w);
    w = wait(seconds, [&](auto h) { asio::async_connect(c.socket, *found, std::move(h)); }, [&] { close_socket(c); });
    if (w.ec) return not_there(w);
    error_code ignored;
    c.socket.set_option(tcp::no_delay(true), ignored);
    if (url.scheme != "https") return {};
    if (proxy)
      if (Exchange e = tunnel(c, url, *proxy, seconds); e.end != End::kDone) return e;
    return handshake(c, url, seconds);
  }

  Exchange handshake(Connection& c, const Url& url, double seconds) {
    c.tls = std::make_unique<ssl::stream<tcp::socket&>>(c.socket, tls);
    const std::string host = bare(url.host);
    error_code literal;
    asio::ip::make_address(host, literal);
    if (literal) SSL_set_tlsext_host_name(c.tls->native_handle(), host.c_str());  // a name, no address
    c.tls->set_verify_callback(ssl::host_name_verification(host));
    const Wait w = wait(
        seconds, [&](auto h) { c.tls->async_handshake(ssl::stream_base::client, std::move(h)); },
        [&] { close_socket(c); });
    if (!w.ec) return {};
    // The name's check has no code of its own.
    const long verdict = SSL_get_verify_result(c.tls->native_handle());
    if (w.end == End::kDone && verdict == X509_V_ERR_UNSPECIFIED)
      return {End::kCertificate, "it is not for this host", "ask the server by a name that its certificate has"};
    if (w.end == End::kDone && verdict != X509_V_OK)
      return {End::kCertificate, X509_verify_cert_error_string(verdict), certificate_remedy(verdict)};
    return failed(w, End::kNeverSent);
  }

  std::string certificate_remedy(long verdict) const {
    if (verdict == X509_V_ERR_CERT_HAS_EXPIRED || verdict == X509_V_ERR_CERT_NOT_YET_VALID)
      return "look at this machine's clock, or renew the server's certificate";
    if (!options.ca_file.empty())
      return authorities ? "add its authority to " + options.ca_file
                         : options.ca_file + " holds no certificate authorities";
    if (!authorities)
      return "no file of certificate authorities was found here: install ca-certificates, or name one in SSL_CERT_FILE";
    return "where it is a server of your own, name a PEM file with its authority in SSL_CERT_FILE";
  }

  using Request = http::request<http::empty_body>;  // its body is written after it, from memory or from files

  Request request_of(const HttpRequest& r, const Url& url, const std::string& method, bool with_body, bool with_secrets,
                     const std::optional<Proxy>& proxy) const {
    Request q;
    q.version(11);
    q.method_string(method);
    const bool absolute = proxy && url.scheme == "http";
    q.target(absolute ? url.text() : url.target);
    q.set(http::field::host, host_field(url));
    q.set(http::field::user_agent, options.user_agent);
    q.set(http::field::accept, "*/*");
    if (absolute && !proxy->authorization.empty()) q.set(http::field::proxy_authorization, proxy->authorization);
    if (r.range_begin)
      q.set(http::field::range,
            fmt::format("bytes={}-{}", *r.range_begin, r.range_end ? std::to_string(*r.range_end) : ""));
    for (const auto& [name, value] : r.headers) {
      if (!with_secrets && (same_word(name, "Authorization") || same_word(name, "Cookie"))) continue;
      if (same_word(name, "Accept") || same_word(name, "User-Agent") || same_word(name, "Host"))
        q.set(name, value);
      else
        q.insert(name, value);
    }
    const std::string basic = with_secrets ? url.basic_authorization() : "";
    if (!basic.empty() && q.count(http::field::authorization) == 0) q.set(http::field::authorization, basic);
    if (with_body) q.content_length(r.parts.empty() ? r.body.size() : BodyReader(r.parts).size());
    return q;
  }

  // However long an answer is waited for: what the network does not take in a minute it does not take.
  template <typename Buffer>
  Wait write(Connection& c, const Buffer& data, double seconds) {
    constexpr double kStalled = 60;
    return wait(
        std::min(seconds, kStalled),
        [&](auto h) { c.with([&](auto& s) { asio::async_write(s, data, std::move(h)); }); }, [&] { close_socket(c); });
  }

  Wait write_body(Connection& c, const HttpRequest& r) {
    if (r.parts.empty()) return r.body.empty() ? Wait{} : write(c, asio::buffer(r.body), r.idle_seconds);
    BodyReader reader(r.parts);
    std::vector<char> piece(kPiece);
    Wait w;
    while (!w.ec) {
      const size_t n = reader.read(piece.data(), piece.size());
      if (n == 0) break;
      w = write(c, asio::buffer(piece.data(), n), r.idle_seconds);
    }
    return w;
  }

  // The request and its answer over `c`. `answered`: a byte of an answer has come.
  Exchange exchange(Connection& c, Request& q, const HttpRequest& r, bool head, bool with_body, const AnswerSink& sink,
                    bool* answered, bool* keep) {
    const auto close = [&] { close_socket(c); };
    Wait w =
        wait(r.idle_seconds, [&](auto h) { c.with([&](auto& s) { http::async_write(s, q, std::move(h)); }); }, close);
    if (w.ec) return failed(w, End::kBroken);
    // A server may answer, and close, before it has read the whole body: its answer counts.
    bool whole = true;
    if (with_body)
      if (w = write_body(c, r); w.ec) {
        if (w.end != End::kDone) return failed(w, End::kBroken);
        whole = false;
      }
    std::optional<http::response_parser<http::buffer_body>> parser;
    uint64_t received = 0;
    std::optional<Clock::time_point> began;  // its first byte was there
    const auto too_slow = [&] {
      if (!began && c.buffer.size() > 0) began = Clock::now();
      if (!began || r.answer_seconds == 0) return false;
      const std::chrono::duration<double> gone = Clock::now() - *began;
      return gone.count() > r.answer_seconds + static_cast<double>(received) / kSlowestAnswer;
    };
    const auto slow = [&] {
      return Exchange{End::kTooSlow, fmt::format("{} bytes of its answer came in time", received)};
    };
    const auto gave_up = [&](const Wait& ended) {
      return ended.end != End::kCancelled && too_slow() ? slow() : failed(ended, End::kBroken);
    };
    do {  // past 100 Continue and the like
      parser.emplace();
      began.reset();
      parser->header_limit(kMaxHeaderBytes);
      parser->body_limit(boost::none);
      if (head) parser->skip(true);
      w = wait(
          r.idle_seconds,
          [&](auto h) { c.with([&](auto& s) { http::async_read_header(s, c.buffer, *parser, std::move(h)); }); }, close,
          too_slow);
      *answered = *answered || c.buffer.size() > 0 || parser->got_some();
      if (w.ec == http::error::header_limit || w.ec == http::error::buffer_overflow) return {End::kTooLarge, ""};
      if (w.ec) return gave_up(w);
    } while (parser->get().result_int() / 100 == 1);
    if (!began) began = Clock::now();
    Headers headers;
    for (const auto& f : parser->get()) headers.emplace_back(std::string(f.name_string()), std::string(f.value()));
    const Headers head_fields = headers;
    if (!sink.headers(static_cast<int>(parser->get().result_int()), std::move(headers))) return {End::kStopped, ""};
    std::vector<char> piece(kPiece);
    while (!parser->is_done()) {
      if (too_slow()) return slow();
      parser->get().body().data = piece.data();
      parser->get().body().size = piece.size();
      w = wait(
          r.idle_seconds,
          [&](auto h) { c.with([&](auto& s) { http::async_read_some(s, c.buffer, *parser, std::move(h)); }); }, close,
          too_slow);
      if (w.ec && w.ec != http::error::need_buffer) return gave_up(w);
      const size_t got = piece.size() - parser->get().body().size;
      received += got;
      if (got > 0 && !sink.body({piece.data(), got})) return {End::kStopped, ""};
    }
    *keep = whole && parser->keep_alive();
    Exchange done;
    for (const auto& f : parser->get())
      if (!find_header(head_fields, std::string_view(f.name_string().data(), f.name_string().size())))
        done.trailers.emplace_back(std::string(f.name_string()), std::string(f.value()));
    return done;
  }
};

Transport::Transport(const HttpOptions& options) : s_(std::make_unique<State>(options)) {}
Transport::~Transport() = default;

Exchange Transport::run(const HttpRequest& r, double seconds, const Url& url, const std::string& method, bool with_body,
                        bool with_secrets, const AnswerSink& sink) {
  State& s = *s_;
  if (s.cancelled()) return {End::kCancelled, ""};
  const Proxies& proxies = s.options.proxies;
  const std::string& by = url.scheme == "https" ? proxies.https : proxies.http;
  const bool direct = by.empty() || is_this_machine(bare(url.host)) || goes_direct(proxies.none, bare(url.host));
  const auto proxy = direct ? std::nullopt : std::optional(parse_proxy(by));
  const std::string key = url.origin() + (proxy ? " by " + proxy->host + ":" + proxy->port : "");
  s.total_end = seconds > 0
                    ? Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))
                    : Clock::time_point::max();
  auto request = s.request_of(r, url, method, with_body, with_secrets, proxy);
  // One that acts goes over a new connection: over a kept one nobody could tell whether it was seen.
  const bool may_repeat = r.repeatable || method == "GET" || method == "HEAD";
  for (;;) {
    std::unique_ptr<Connection> c = may_repeat && s.kept && s.kept->key == key ? std::move(s.kept) : nullptr;
    s.kept.reset();
    const bool old = c != nullptr;
    if (!old) {
      c = std::make_unique<Connection>(s.io);
      c->key = key;
      if (Exchange e = s.connect(*c, url, proxy, r.connect_seconds); e.end != End::kDone) return e;
    }
    bool answered = false, keep = false;
    Exchange e;
    try {
      e = s.exchange(*c, request, r, method == "HEAD", with_body, sink, &answered, &keep);
    } catch (const boost::system::system_error& x) {
      e = {End::kBroken, x.what()};
    } catch (const std::length_error&) {  // Beast: a header field of more than 64 KiB
      e = {End::kTooLarge, ""};
    }
    // A kept connection that the server had closed meanwhile, most likely; or it broke off: it may have seen the
    // request.
    if (old && !answered && e.end == End::kBroken && Clock::now() < s.total_end) continue;
    if (e.end == End::kDone && keep) s.kept = std::move(c);
    return e;
  }
}

}  // namespace mxt::net
