// The server over real sockets, with a tiny random model and a byte tokenizer that the test makes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>  // program_invocation_short_name
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client.h"
#include "net/http.h"
#include "serve/http/server.h"
#include "serve/operator.h"
#include "serve/tiny_model.h"

namespace mxt::serve::served {

struct Server {
  std::unique_ptr<infer::Model> model;
  std::unique_ptr<infer::Scheduler> scheduler;
  std::unique_ptr<Operator> op;
  std::unique_ptr<HttpServer> http;
  std::string url;

  // `begun`: whether it takes requests from the start; else they wait for scheduler->start().
  explicit Server(OperatorSettings settings = {}, HttpSettings h = {}, infer::SchedulerSettings sched = {.batch = 8},
                  bool begun = true) {
    static const std::string folder =
        make_tiny_model(testing::TempDir() + "/" + program_invocation_short_name + "_model");
    model = std::make_unique<infer::Model>(folder, "", DType::kF32, 512, kernels::cpu_ops());
    scheduler = std::make_unique<infer::Scheduler>(*model, sched);
    ServedModel s;
    s.model = model.get();
    s.scheduler = scheduler.get();
    s.tok = tokenizer::Tokenizer::from_folder(folder);
    s.chat_source = kTinyChat;
    s.chat = tokenizer::ChatTemplate::compile(kTinyChat, "test", {}, {"<s>", "</s>"});
    s.stop = {257};
    s.names = {{"tiny", -1}};
    op = std::make_unique<Operator>(std::move(s), std::move(settings));
    http = std::make_unique<HttpServer>(
        h, [this](const auto& r) { return op->gate(r); },
        [this](const auto& r, auto reply) { op->handle(r, std::move(reply)); });
    if (begun) scheduler->start();
    http->start();
    url = "http://127.0.0.1:" + std::to_string(http->port());
  }
  ~Server() {
    http->drain(0);
    scheduler->stop();
  }
};

inline Server& shared() {
  static Server s;
  return s;
}

inline Answer send(const Server& s, const std::string& method, const std::string& path, const std::string& body = "",
                   net::Headers headers = {}) {
  return ask(s.url, method, path, body, std::move(headers));
}
inline Answer post(const std::string& path, const nlohmann::json& body) {
  return send(shared(), "POST", path, body.dump());
}

inline std::vector<nlohmann::json> events(const std::string& body) {
  std::vector<nlohmann::json> out;
  bool done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    EXPECT_FALSE(done);
    if (line == "data: [DONE]")
      done = true;
    else if (line.starts_with("data: "))
      out.push_back(nlohmann::json::parse(line.substr(6)));
  }
  EXPECT_TRUE(done);
  return out;
}

// Raw bytes to the server, what it answers until it closes or the time is over.
inline std::string raw(const Server& s, const std::string& bytes, bool half_close = false) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(s.http->port());
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  // A connection that stays open is quiet when all is said; how long the first word takes depends on the machine.
  const auto patience = [fd](int seconds) {
    const timeval t{seconds, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  };
  patience(60);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const auto n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  if (half_close) ::shutdown(fd, SHUT_WR);
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0; patience(3))
    out.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return out;
}

inline bool alive() { return send(shared(), "GET", "/health").status == 200; }

inline nlohmann::json chat(const std::string& text = "hi") {
  return {{"model", "tiny"},
          {"messages", {{{"role", "user"}, {"content", text}}}},
          {"max_tokens", 6},
          {"temperature", 0},
          {"chat_template_kwargs", {{"enable_thinking", false}}}};
}

inline nlohmann::json with_tool() {
  auto r = chat();
  r["tools"] = nlohmann::json::parse(
      R"([{"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},"required":["city"]}}}])");
  r["tool_choice"] = "required";
  r["parallel_tool_calls"] = false;
  r["max_tokens"] = 300;
  return r;
}

}  // namespace mxt::serve::served
