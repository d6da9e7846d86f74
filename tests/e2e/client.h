// A server under test as a process of its own: a port for it, and what it answers.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "free_port.h"

namespace mxt::cli {

inline sockaddr_in local(uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  a.sin_port = htons(port);
  return a;
}

inline bool answers(uint16_t port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in a = local(port);
  const bool there = connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
  close(s);
  return there;
}

// What the server answers to one request; "" where it does not.
inline std::string asked(uint16_t port, const std::string& path, const std::string& body) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in a = local(port);
  std::string all;
  if (connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
    const std::string request = fmt::format(
        "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
        "{}\r\n\r\n{}",
        path, body.size(), body);
    if (send(s, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size())) {
      char piece[4096];
      for (ssize_t n; (n = read(s, piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(n));
    }
  }
  close(s);
  const size_t head = all.find("\r\n\r\n");
  return head == std::string::npos ? "" : all.substr(head + 4);
}

}  // namespace mxt::cli
