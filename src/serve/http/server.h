// HTTP/1.1 server: bounded everything. Sessions are coroutines on a few threads; handlers run on a pool of their own
// and answer through a Reply from any thread, at once or piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mxt::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  // path: what stands before '?', starting with '/', not decoded
  Headers headers;
  std::string body;
  std::string peer;                                        // address
  const std::string* header(std::string_view name) const;  // any case; null where absent
};

struct HttpAnswer {
  int status = 200;
  Headers headers;  // Content-Type and what else is wanted; length and framing are added
  std::string body;
};

// The answer to one request. Thread-safe; calls after the end or after the client has gone do nothing.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(HttpAnswer answer) = 0;             // whole
  virtual void begin(int status, Headers headers) = 0;  // then write() and end()
  virtual void write(std::string piece) = 0;
  virtual void end(Headers trailers = {}) = 0;  // what is known at the end alone; a client of HTTP/1.0 gets none
  virtual bool gone() const = 0;                // the client has closed, or reads too slowly
  virtual void on_gone(std::function<void()> callback) = 0;  // called once, on any thread; at once where it already has
  // Asked before send() or end(): called once, at once when the network has all of the answer, on a thread that others'
  // answers wait for; let go uncalled where the connection ends before. Must not throw.
  virtual void on_sent(std::function<void()> callback) = 0;
};

struct HttpSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  int io_threads = 2, handler_threads = 2;
  size_t max_header_bytes = 16 << 10, max_body_bytes = 8 << 20, max_unsent_bytes = 16 << 20,
         max_drained_bytes = 256 << 20;  // of a body that was refused
  int64_t max_connections = 1024;
  // Origins whose pages may read the answers (CORS), as browsers send them ("http://localhost:5173"); "*": any.
  std::vector<std::string> cors;
  double idle_seconds = 75, body_seconds = 30, write_seconds = 30;  // write: without progress
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest&, std::shared_ptr<Reply>)>;
  // Called on an i/o thread with the head alone, before the body is read; an answer refuses the request and closes the
  // connection.
  using Gate = std::function<std::optional<HttpAnswer>(const HttpRequest&)>;

  // Binds at once (kBadInput: the address cannot be had) and accepts from start() on.
  HttpServer(const HttpSettings& settings, Gate gate, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  void start();
  uint16_t port() const;
  int64_t connections() const;
  // No new connections and no further request on old ones; returns when the answers under way are out or the time is
  // over, and then closes what is left.
  void drain(double seconds);

  struct State;

 private:
  std::shared_ptr<State> s_;
};

}  // namespace mxt::serve
