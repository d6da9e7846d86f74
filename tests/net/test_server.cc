#include "net/test_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/text.h"

namespace mxt::net {
namespace {

void send_all(int fd, std::string_view s) {
  while (!s.empty()) {
    const ssize_t n = ::send(fd, s.data(), s.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    s.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

TestServer::TestServer(Handler handler) : handler_(std::move(handler)) {
  listen_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  MXT_ASSERT(bind(listen_, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 && listen(listen_, 64) == 0);
  socklen_t n = sizeof a;
  getsockname(listen_, reinterpret_cast<sockaddr*>(&a), &n);
  port_ = ntohs(a.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

TestServer::~TestServer() {
  stop_ = true;
  acceptor_.join();
  for (auto& t : threads_) t.join();
  close(listen_);
}

std::vector<ServerRequest> TestServer::seen() const {
  const std::lock_guard hold(mutex_);
  return seen_;
}

size_t TestServer::count(const std::string& method, const std::string& part) const {
  size_t n = 0;
  for (const auto& r : seen()) n += r.method == method && r.target.find(part) != std::string::npos;
  return n;
}

void TestServer::accept_loop() {
  while (!stop_) {
    pollfd p{listen_, POLLIN, 0};
    if (poll(&p, 1, 20) <= 0) continue;
    const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void TestServer::serve(int fd) {
  std::string in;
  bool open = true;
  while (open && !stop_) {
    size_t end;
    while ((end = in.find("\r\n\r\n")) == std::string::npos && !stop_) {
      pollfd p{fd, POLLIN, 0};
      if (poll(&p, 1, 20) <= 0) continue;
      char buffer[4096];
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      in.append(buffer, static_cast<size_t>(n));
    }
    if (end == std::string::npos) break;
    ServerRequest r;
    const std::string head = in.substr(0, end);
    in.erase(0, end + 4);
    bool first = true;
    for (std::string_view line : split(head, '\n')) {
      line = trim(line);
      if (first) {
        const auto parts = split(line, ' ');
        if (parts.size() < 2) break;
        r.method = parts[0];
        r.target = parts[1];
        first = false;
      } else if (const size_t c = line.find(':'); c != std::string_view::npos) {
        std::string name(line.substr(0, c));
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char ch) { return std::tolower(ch); });
        r.headers[name] = trim(line.substr(c + 1));
      }
    }
    size_t length = r.headers.contains("content-length") ? std::stoul(r.headers["content-length"]) : 0;
    while (in.size() < length) {
      char buffer[4096];
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      in.append(buffer, static_cast<size_t>(n));
    }
    r.body = in.substr(0, length);
    in.erase(0, length);
    {
      const std::lock_guard hold(mutex_);
      seen_.push_back(r);
    }
    const ServerResponse a = handler_(r);
    if (a.delay_ms) std::this_thread::sleep_for(std::chrono::milliseconds(a.delay_ms));
    if (a.status == 0) break;
    std::string out = "HTTP/1.1 " + std::to_string(a.status) + " x\r\n";
    bool has_length = false;
    for (const auto& [k, v] : a.headers) {
      out += k + ": " + v + "\r\n";
      has_length = has_length || k == "Content-Length" || k == "Transfer-Encoding";
    }
    if (!has_length) out += "Content-Length: " + std::to_string(a.body.size()) + "\r\n";
    out += "\r\n";
    open = a.cut_after == std::string::npos;
    const auto send_by = [&](const std::string& text, int ms) {
      if (ms == 0) return send_all(fd, text);
      for (size_t i = 0; i < text.size() && open && !stop_; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
        open = send(fd, &text[i], 1, MSG_NOSIGNAL) == 1;
      }
    };
    const std::string body = r.method == "HEAD" ? "" : a.body.substr(0, a.cut_after);
    send_by(out, a.drip_head_ms);
    send_by(body, a.drip_ms);
  }
  close(fd);
}

}  // namespace mxt::net
