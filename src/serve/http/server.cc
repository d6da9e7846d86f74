#include "serve/http/server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace mxt::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Strand = asio::strand<asio::io_context::executor_type>;
using Socket = asio::basic_stream_socket<tcp, Strand>;
using Stream = beast::basic_stream<tcp, Strand>;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

bool equal_any_case(std::string_view a, std::string_view b) {
  return beast::iequals(beast::string_view(a.data(), a.size()), beast::string_view(b.data(), b.size()));
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (equal_any_case(key, name)) return &value;
  return nullptr;
}

namespace {

// What a handler has said so far, and a bell for the session that sends it.
class Outbox final : public Reply {
 public:
  Outbox(size_t max_unsent, std::function<void()> bell) : max_unsent_(max_unsent), bell_(std::move(bell)) {}

  void send(HttpAnswer a) override {
    std::lock_guard lock(mutex_);
    if (head_ || gone_) return;
    whole_ = ended_ = true;
    head_ = std::move(a);
    bell_();
  }
  void begin(int status, Headers headers) override {
    std::lock_guard lock(mutex_);
    if (head_ || gone_) return;
    head_ = HttpAnswer{status, std::move(headers), {}};
    bell_();
  }
  void write(std::string piece) override {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex_);
      if (!head_ || ended_ || gone_ || piece.empty()) return;
      unsent_ += piece.size();
      pieces_.push_back(std::move(piece));
      if (unsent_ > max_unsent_) {  // the client reads more slowly than we make
        gone_ = true;
        call = std::move(callback_);
      }
      bell_();
    }
    if (call) call();
  }
  void end(Headers trailers = {}) override {
    std::lock_guard lock(mutex_);
    if (!head_ || gone_ || ended_) return;
    trailers_ = std::move(trailers);
    ended_ = true;
    bell_();
  }
  bool gone() const override {
    std::lock_guard lock(mutex_);
    return gone_;
  }
  void on_gone(std::function<void()> callback) override {
    {
      std::lock_guard lock(mutex_);
      if (!gone_) {
        callback_ = std::move(callback);
        return;
      }
    }
    callback();
  }
  void on_sent(std::function<void()> callback) override {
    std::lock_guard lock(mutex_);
    if (!gone_) sent_ = std::move(callback);
  }

  // The session's side.
  void client_gone() {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex_);
      if (gone_) return;
      gone_ = true;
      if (!ended_) call = std::move(callback_);
      callback_ = nullptr;
      bell_();
    }
    if (call) call();
  }
  // Nothing more will be asked of the handler: what its callback holds is let go.
  void finished() {
    std::lock_guard lock(mutex_);
    callback_ = nullptr;
  }
  // What on_sent() was given, once.
  std::function<void()> take_sent() {
    std::lock_guard lock(mutex_);
    return std::exchange(sent_, nullptr);
  }
  std::optional<HttpAnswer> head() {
    std::lock_guard lock(mutex_);
    return head_;
  }
  bool whole() const {
    std::lock_guard lock(mutex_);
    return whole_;
  }
  // The pieces so far as one; `last`: nothing follows.
  Headers trailers() const {
    std::lock_guard lock(mutex_);
    return trailers_;
  }
  std::string take(bool& last) {
    std::lock_guard lock(mutex_);
    std::string all;
    for (auto& p : pieces_) all += p;
    pieces_.clear();
    unsent_ = 0;
    last = ended_;
    return all;
  }

 private:
  mutable std::mutex mutex_;
  size_t max_unsent_, unsent_ = 0;
  std::function<void()> bell_, callback_, sent_;
  std::optional<HttpAnswer> head_;
  std::deque<std::string> pieces_;
  Headers trailers_;
  bool whole_ = false, ended_ = false, gone_ = false;
};

// What a browser wants to hear before a page of another origin may read the answer.
Headers cors_headers(const std::vector<std::string>& allowed, const HttpRequest& r) {
  const std::string* origin = r.header("Origin");
  if (allowed.empty() || !origin || r.path.starts_with("/coach")) return {};
  Headers h{{"Vary", "Origin"}};
  for (const auto& a : allowed)
    if (a == "*" || a == *origin) {
      h.emplace_back("Access-Control-Allow-Origin", a);
      h.emplace_back("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, Content-Length");
      break;
    }
  return h;
}

// The question that comes before a request: answered for every path, since keys come with the request itself.
bool is_preflight(const HttpRequest& r) {
  return r.method == "OPTIONS" && r.header("Origin") && r.header("Access-Control-Request-Method");
}
HttpAnswer preflight(const HttpRequest& r) {
  HttpAnswer a{204, {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"}, {"Access-Control-Max-Age", "600"}}, {}};
  if (const std::string* asked = r.header("Access-Control-Request-Headers"))
    a.headers.emplace_back("Access-Control-Allow-Headers", *asked);
  if (r.header("Access-Control-Request-Private-Network"))
    a.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  return a;
}

HttpAnswer plain_error(int status, const std::string& message) {
  return {status,
          {{"Content-Type", "application/json"}},
          R"({"error":{"message":")" + message + R"(","type":"invalid_request_error","param":null,"code":null}})"};
}

}  // namespace

class Session;

struct HttpServer::State : std::enable_shared_from_this<State> {
  HttpSettings settings;
  Gate gate;
  Handler handler;
  asio::io_context io;
  tcp::acceptor acceptor{io};
  std::unique_ptr<asio::thread_pool> handlers;
  std::vector<std::thread> threads;
  std::atomic<bool> draining{false};
  uint16_t port = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<Session*, std::weak_ptr<Session>> sessions;

  asio::awaitable<void> accept();
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<HttpServer::State> server, Socket socket)
      : s_(std::move(server)), stream_(std::move(socket)), bell_(stream_.get_executor()) {
    error_code ec;
    const auto address = stream_.socket().remote_endpoint(ec).address();
    peer_ = ec ? "" : address.to_string();
    auto& sock = stream_.socket();
    sock.set_option(tcp::no_delay(true), ec);
    sock.set_option(asio::socket_base::keep_alive(true), ec);  // half-open connections end
    const int idle = 60, every = 15, count = 4;
    ::setsockopt(sock.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    ::setsockopt(sock.native_handle(), IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    ::setsockopt(sock.native_handle(), IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  }
  ~Session() {
    std::lock_guard lock(s_->mutex);
    s_->sessions.erase(this);
    s_->changed.notify_all();
  }

  Strand executor() { return stream_.get_executor(); }

  asio::awaitable<void> run() {
    const auto self = shared_from_this();
    try {
      while (co_await one()) {
      }
    } catch (const std::exception&) {  // a connection that breaks is nobody's business
    }
    if (outbox_) outbox_->client_gone();
    error_code ec;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ec);
    stream_.close();
  }

  // Ends an idle connection at once, a busy one after its answer; `now`: both.
  void close(bool now) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
      if (now || !self->busy_) self->stream_.close();
    });
  }

 private:
  // Callers hand over a local: this compiler (GCC 12) destroys some temporaries of a co_await twice.
  asio::awaitable<void> write_whole(HttpAnswer a, unsigned version, bool keep, bool head_only) {
    http::response<http::string_body> r{static_cast<http::status>(a.status), version};
    for (auto& [k, v] : a.headers) r.insert(k, v);
    for (auto& [k, v] : cors_) r.insert(k, v);
    r.keep_alive(keep);
    r.body() = std::move(a.body);
    r.prepare_payload();
    http::response_serializer<http::string_body> serializer(r);
    stream_.expires_after(milliseconds(s_->settings.write_seconds));
    if (head_only)
      co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
    else
      co_await http::async_write(stream_, serializer, asio::use_awaitable);
  }

  // While an answer is made: has the client hung up? What a client sends meanwhile (pipelining) ends the watch.
  asio::awaitable<void> watch(std::shared_ptr<Outbox> outbox, uint64_t turn) {
    const auto self = shared_from_this();
    const auto [ec] = co_await stream_.socket().async_wait(tcp::socket::wait_read, kTuple);
    if (ec || turn != turn_) co_return;
    char byte;
    const auto n = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) outbox->client_gone();
  }

  void all_sent() {
    if (const auto sent = outbox_->take_sent()) sent();
    outbox_.reset();
  }

  // After an answer that came before the whole request: ordinary clients write to the end before they read, and a
  // connection that is reset loses them the answer. What they send is thrown away, within bounds.
  asio::awaitable<void> drain() {
    error_code ec;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ec);
    stream_.expires_after(milliseconds(s_->settings.body_seconds));
    std::vector<char> piece(size_t{64} << 10);
    for (size_t left = s_->settings.max_drained_bytes; left > 0;) {
      const auto [error, n] = co_await stream_.async_read_some(asio::buffer(piece), kTuple);
      if (error || n == 0) co_return;
      left -= std::min(left, n);
    }
  }

  asio::awaitable<bool> one() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(s_->settings.max_header_bytes));
    parser.body_limit(s_->settings.max_body_bytes);
    stream_.expires_after(milliseconds(s_->settings.idle_seconds));
    busy_ = false;
    cors_.clear();
    if (s_->draining) co_return false;
    const auto [head_error, head_bytes] = co_await http::async_read_header(stream_, buffer_, parser, kTuple);
    busy_ = true;
    if (head_error) {
      const bool ours = head_error == http::error::header_limit ||
                        (head_error.category() == make_error_code(http::error::bad_target).category() &&
                         head_error != http::error::end_of_stream && head_error != http::error::partial_message);
      if (ours) {
        HttpAnswer no = plain_error(400, "this is no HTTP/1.1 request");
        if (head_error == http::error::header_limit) no = plain_error(431, "the request's headers are too large");
        if (head_error == http::error::body_limit) no = plain_error(413, "the request body is too large");
        co_await write_whole(std::move(no), 11, false, false);
        co_await drain();
      }
      co_return false;
    }
    HttpRequest request;
    const auto& head = parser.get();
    request.method = std::string(head.method_string());
    const std::string target(head.target());
    const size_t query = target.find('?');
    request.path = target.substr(0, query);
    if (query != std::string::npos) request.query = target.substr(query + 1);
    for (const auto& field : head)
      request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    request.peer = peer_;
    cors_ = cors_headers(s_->settings.cors, request);
    const unsigned version = head.version();
    const bool head_only = head.method() == http::verb::head;
    bool keep = parser.get().keep_alive() && !s_->draining;

    std::optional<HttpAnswer> refused;
    if (version >= 11 && !request.header("Host"))
      refused = plain_error(400, "the request has no Host header");
    else if (std::any_of(request.headers.begin(), request.headers.end(), [](const auto& h) {
               return equal_any_case(h.first, "Transfer-Encoding") && !equal_any_case(h.second, "chunked");
             }))
      refused = plain_error(501, "the only transfer coding that is taken is chunked"), keep = false;
    else if (const std::string* coding = request.header("Content-Encoding");
             coding && !equal_any_case(*coding, "identity"))
      refused = plain_error(415, "request bodies are taken uncompressed");
    else if (request.path.empty() || request.path[0] != '/')
      refused = plain_error(400, "the request target must be a path");
    else if (parser.content_length() && *parser.content_length() > s_->settings.max_body_bytes)
      refused = plain_error(413, "the request body is too large");
    else if (s_->draining)
      refused = plain_error(503, "the server is shutting down");
    else if (cors_.size() > 1 && is_preflight(request))  // more than that answers vary: the origin may read them
      refused = preflight(request);
    else
      refused = s_->gate(request);
    if (refused) {
      // The body has not been read: where there is one the connection cannot go on.
      const bool empty = parser.is_done() || (parser.content_length() && *parser.content_length() == 0);
      co_await write_whole(std::move(*refused), version, keep && empty, head_only);
      if (!empty) co_await drain();
      co_return keep&& empty&& parser.is_done();
    }
    if (const std::string* expect = request.header("Expect"); expect && equal_any_case(*expect, "100-continue")) {
      http::response<http::empty_body> go{http::status::continue_, version};
      co_await http::async_write(stream_, go, asio::use_awaitable);
    }
    stream_.expires_after(milliseconds(s_->settings.body_seconds));
    if (!parser.is_done()) {
      const auto [body_error, body_bytes] = co_await http::async_read(stream_, buffer_, parser, kTuple);
      if (body_error) {
        HttpAnswer no;
        if (body_error == http::error::body_limit)
          no = plain_error(413, "the request body is too large");
        else if (body_error != beast::error::timeout && body_error != http::error::partial_message &&
                 body_error != asio::error::eof)
          no = plain_error(400, "the request body is not well formed");
        if (!no.body.empty()) {
          co_await write_whole(std::move(no), version, false, false);
          co_await drain();
        }
        co_return false;
      }
    }
    request.body = std::move(parser.get().body());
    keep = co_await answer(std::move(request), version, keep, head_only);
    co_return keep && !s_->draining;
  }

  asio::awaitable<bool> answer(HttpRequest request, unsigned version, bool keep, bool head_only) {
    const std::weak_ptr<Session> weak = weak_from_this();
    outbox_ = std::make_shared<Outbox>(s_->settings.max_unsent_bytes, [weak] {
      if (const auto self = weak.lock()) asio::post(self->stream_.get_executor(), [self] { self->bell_.cancel(); });
    });
    const auto outbox = outbox_;
    asio::post(*s_->handlers, [server = s_, outbox, request = std::move(request)] {
      try {
        server->handler(request, outbox);
      } catch (const std::exception& e) {
        log::warn("{} {}: {}", request.method, request.path, e.what());
        outbox->send(plain_error(500, "an error inside the server"));
        outbox->end();
      }
    });
    stream_.expires_never();
    ++turn_;
    asio::co_spawn(stream_.get_executor(), watch(outbox, turn_), asio::detached);
    auto wait = [&]() -> asio::awaitable<void> {
      bell_.expires_at(std::chrono::steady_clock::time_point::max());
      co_await bell_.async_wait(kTuple);
    };
    while (!outbox->head() && !outbox->gone()) co_await wait();
    if (outbox->gone()) co_return false;
    ++turn_;  // the watch is for the waiting; writing notices by itself
    HttpAnswer a = *outbox->head();
    if (outbox->whole()) {
      error_code ec;
      stream_.socket().cancel(ec);
      outbox->finished();
      co_await write_whole(std::move(a), version, keep, head_only);
      all_sent();
      co_return keep;
    }
    asio::co_spawn(stream_.get_executor(), watch(outbox, turn_), asio::detached);
    // HTTP/1.0 knows no chunks: the end of the connection is the end of the body.
    const bool chunked = version >= 11;
    keep = keep && chunked;
    http::response<http::empty_body> r{static_cast<http::status>(a.status), version};
    for (auto& [k, v] : a.headers) r.insert(k, v);
    for (auto& [k, v] : cors_) r.insert(k, v);
    r.keep_alive(keep);
    if (chunked) r.chunked(true);
    http::response_serializer<http::empty_body> serializer(r);
    stream_.expires_after(milliseconds(s_->settings.write_seconds));
    co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
    for (bool last = false; !last;) {
      const std::string piece = outbox->take(last);
      if (outbox->gone()) co_return false;
      stream_.expires_after(milliseconds(s_->settings.write_seconds));
      if (!piece.empty()) {
        if (chunked)
          co_await asio::async_write(stream_, http::make_chunk(asio::buffer(piece)), asio::use_awaitable);
        else
          co_await asio::async_write(stream_, asio::buffer(piece), asio::use_awaitable);
      }
      stream_.expires_never();
      if (!last && piece.empty()) co_await wait();
    }
    stream_.expires_after(milliseconds(s_->settings.write_seconds));
    if (chunked) {
      http::fields trailers;
      for (const auto& [k, v] : outbox->trailers()) trailers.insert(k, v);
      co_await asio::async_write(stream_, http::make_chunk_last(trailers), asio::use_awaitable);
    }
    ++turn_;
    error_code ec;
    stream_.socket().cancel(ec);
    outbox->finished();
    all_sent();
    co_return keep;
  }

  std::shared_ptr<HttpServer::State> s_;
  Stream stream_;
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Strand> bell_;
  beast::flat_buffer buffer_;
  std::shared_ptr<Outbox> outbox_;
  std::string peer_;
  Headers cors_;  // of the request being answered
  uint64_t turn_ = 0;
  bool busy_ = false;
};

asio::awaitable<void> HttpServer::State::accept() {
  const auto self = shared_from_this();
  while (acceptor.is_open()) {
    Socket socket(asio::make_strand(io));
    const auto [ec] = co_await acceptor.async_accept(socket, kTuple);
    if (ec == asio::error::operation_aborted || !acceptor.is_open()) co_return;
    if (ec) {  // no more descriptors, say: others may close
      asio::steady_timer pause(io, std::chrono::milliseconds(50));
      co_await pause.async_wait(kTuple);
      continue;
    }
    size_t open;
    {
      std::lock_guard lock(mutex);
      open = sessions.size();
    }
    if (static_cast<int64_t>(open) >= settings.max_connections) continue;  // closed at once
    const auto session = std::make_shared<Session>(self, std::move(socket));
    {
      std::lock_guard lock(mutex);
      sessions[session.get()] = session;
    }
    asio::co_spawn(session->executor(), session->run(), asio::detached);
  }
}

HttpServer::HttpServer(const HttpSettings& settings, Gate gate, Handler handler) : s_(std::make_shared<State>()) {
  s_->settings = settings;
  s_->gate = std::move(gate);
  s_->handler = std::move(handler);
  try {
    const auto address = asio::ip::make_address(settings.host == "localhost" ? "127.0.0.1" : settings.host);
    const tcp::endpoint at(address, settings.port);
    s_->acceptor.open(at.protocol());
    s_->acceptor.set_option(asio::socket_base::reuse_address(true));
    s_->acceptor.bind(at);
    s_->acceptor.listen(1024);
    s_->port = s_->acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& e) {
    fail_input("cannot listen on {}:{}: {}; choose another --host or --port", settings.host, settings.port,
               e.code().message());
  }
}

void HttpServer::start() {
  s_->handlers = std::make_unique<asio::thread_pool>(static_cast<size_t>(s_->settings.handler_threads));
  asio::co_spawn(s_->io, s_->accept(), asio::detached);
  for (int i = 0; i < s_->settings.io_threads; ++i) s_->threads.emplace_back([s = s_] { s->io.run(); });
}

uint16_t HttpServer::port() const { return s_->port; }

int64_t HttpServer::connections() const {
  std::lock_guard lock(s_->mutex);
  return static_cast<int64_t>(s_->sessions.size());
}

void HttpServer::drain(double seconds) {
  if (s_->threads.empty()) return;
  s_->draining = true;
  asio::post(s_->io, [s = s_] {
    error_code ec;
    s->acceptor.close(ec);
  });
  auto close_all = [&](bool now) {
    std::vector<std::shared_ptr<Session>> open;  // let go of outside the lock: the last to hold a session ends it
    {
      std::lock_guard lock(s_->mutex);
      for (const auto& [p, session] : s_->sessions)
        if (auto alive = session.lock()) open.push_back(std::move(alive));
    }
    for (const auto& session : open) session->close(now);
  };
  close_all(false);
  {
    std::unique_lock lock(s_->mutex);
    s_->changed.wait_for(lock, milliseconds(seconds), [&] { return s_->sessions.empty(); });
  }
  close_all(true);
  {
    std::unique_lock lock(s_->mutex);
    s_->changed.wait_for(lock, std::chrono::seconds(5), [&] { return s_->sessions.empty(); });
  }
  s_->handlers->join();
  s_->io.stop();
  for (auto& t : s_->threads) t.join();
  s_->threads.clear();
  // What was on its way ends here, the acceptance that was broken off for one: it holds the state that holds it.
  s_->io.restart();
  s_->io.poll();
}

HttpServer::~HttpServer() { drain(0); }

}  // namespace mxt::serve
