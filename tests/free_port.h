// A port of this machine that nobody has at the moment.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace mxt {

inline uint16_t free_port() {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  EXPECT_EQ(bind(s, reinterpret_cast<sockaddr*>(&a), n), 0);
  EXPECT_EQ(getsockname(s, reinterpret_cast<sockaddr*>(&a), &n), 0);
  close(s);
  return ntohs(a.sin_port);
}

}  // namespace mxt
