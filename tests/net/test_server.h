// A small HTTP/1.1 server on a port of its own, for tests: one thread a connection, one handler for all requests.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace mxt::net {

struct ServerRequest {
  std::string method, target;                  // target: path and query, still encoded
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
};

struct ServerResponse {
  int status = 200;  // 0: the connection ends without a byte
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  size_t cut_after = std::string::npos;  // sends so many bytes of the body, then closes the connection
  int delay_ms = 0;                      // before the answer
  int drip_ms = 0;                       // before each byte of the body
  int drip_head_ms = 0;                  // before each byte of the head
};

class TestServer {
 public:
  using Handler = std::function<ServerResponse(const ServerRequest&)>;
  explicit TestServer(Handler handler);
  ~TestServer();
  int port() const { return port_; }
  std::string url(const std::string& target = "", const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_) + target;
  }
  std::vector<ServerRequest> seen() const;  // all requests so far
  size_t count(const std::string& method, const std::string& part) const;

 private:
  void accept_loop();
  void serve(int fd);
  Handler handler_;
  int listen_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<ServerRequest> seen_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace mxt::net
