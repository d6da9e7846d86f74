// The server's HTTP: hostile bytes, uploads, origins, keys, queues, clients that leave.
#include <chrono>
#include <future>
#include <thread>

#include "base/within.h"
#include "served.h"

namespace mxt::serve::served {
namespace {

TEST(Http, BadRequestsGetAnAnswerAndCostNothing) {
  auto status = [](const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; };
  const std::string h = "Host: x\r\nConnection: close\r\n";
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\n" + h + "\r\n")), 200);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.0\r\n\r\n")), 200);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")),
            400);  // RFC 9112: a Host is a must
  EXPECT_EQ(status(raw(shared(), "nonsense\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nHost: a/?x\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET http://evil/health HTTP/1.1\r\n" + h + "\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "GET /v1/../health HTTP/1.1\r\n" + h + "\r\n")), 404);
  EXPECT_EQ(status(raw(shared(), "GET //health HTTP/1.1\r\n" + h + "\r\n")), 404);
  EXPECT_EQ(status(raw(shared(), "GET /v1/chat/completions HTTP/1.1\r\n" + h + "\r\n")), 405);
  EXPECT_EQ(status(raw(shared(), "DELETE /health HTTP/1.1\r\n" + h + "\r\n")), 405);
  EXPECT_NE(raw(shared(), "DELETE /health HTTP/1.1\r\n" + h + "\r\n").find("Allow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_EQ(status(raw(shared(), "GET /health HTTP/1.1\r\nX: " + std::string(100000, 'a') + "\r\n\r\n")), 431);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 999999999999\r\n\r\n")), 413);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: -1\r\n\r\n")), 400);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h +
                                     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            400);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n\r\nzz\r\n")), 400);
  // What a body is when it is not chunked is a guess, and a guess lets a request hide in another's body.
  for (const char* coding :
       {"gzip, chunked", "identity", "xchunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: gzip"}) {
    const std::string a =
        raw(shared(), "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + std::string(coding) +
                          "\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_GE(status(a), 400) << coding;
    EXPECT_EQ(a.find("\"ok\""), std::string::npos) << coding;
  }
  EXPECT_EQ(status(raw(shared(),
                       "POST /tokenize HTTP/1.1\r\n" + h + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")),
            415);
  std::string big = "POST /tokenize HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 20; ++i) big += "80000\r\n" + std::string(0x80000, 'x') + "\r\n";
  EXPECT_EQ(status(raw(shared(), big + "0\r\n\r\n")), 413);
  EXPECT_EQ(status(raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 15\r\n\r\n{\"prompt\":\"ab\"}")),
            200);
  raw(shared(), "POST /tokenize HTTP/1.1\r\n" + h + "Content-Length: 50\r\n\r\n{", true);  // ends in the middle
  // Two in one piece: both are answered, in order.
  const std::string two =
      raw(shared(), "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\n" + h + "\r\n");
  EXPECT_LT(two.find("\"ok\""), two.find("\"tiny\""));
  EXPECT_NE(two.find("\"tiny\""), std::string::npos);
  EXPECT_TRUE(alive());
}

TEST(Http, ARefusedUploadIsReadToItsEnd) {
  HttpSettings h;
  h.max_body_bytes = 1 << 20;
  Server s({}, h);
  // As ordinary clients do: all of the body is written before anything is read. A reset would lose the answer.
  const std::string body(24 << 20, 'x');
  const std::string length =
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  std::string chunked = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 1 << 20) chunked += "100000\r\n" + body.substr(at, 1 << 20) + "\r\n";
  for (const std::string& request : {length + body, chunked + "0\r\n\r\n"}) {
    const std::string a = raw(s, request);
    EXPECT_TRUE(a.starts_with("HTTP/1.1 413 ")) << a.substr(0, 100);
    EXPECT_NE(a.find("Connection: close"), std::string::npos);
    EXPECT_NE(a.find("too large"), std::string::npos);
  }
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"}};
  Server keyed(o);
  const std::string half(4 << 20, 'x');
  const std::string a =
      raw(keyed,
          "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(half.size()) + "\r\n\r\n" + half);
  EXPECT_TRUE(a.starts_with("HTTP/1.1 401 ")) << a.substr(0, 100);
  EXPECT_EQ(send(s, "GET", "/health").status, 200);
}

TEST(Http, PagesOfAllowedOriginsMayRead) {
  HttpSettings h;
  h.cors = {"http://localhost:5173"};
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"}};
  Server s(o, h);
  auto ask_raw = [&](const std::string& method, const std::string& origin, const std::string& more) {
    return raw(s, method + " /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                      (origin.empty() ? "" : "Origin: " + origin + "\r\n") + more + "\r\n");
  };
  const std::string asked = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n";
  const std::string before = ask_raw("OPTIONS", "http://localhost:5173", asked);
  EXPECT_TRUE(before.starts_with("HTTP/1.1 204 ")) << before;
  for (const char* part :
       {"Access-Control-Allow-Origin: http://localhost:5173\r\n", "Vary: Origin\r\n",
        "Access-Control-Allow-Headers: authorization\r\n", "Access-Control-Allow-Methods: GET, POST"})
    EXPECT_NE(before.find(part), std::string::npos) << part << before;
  // Refusals can be read too, or the page could not say what is wrong.
  const std::string refused = ask_raw("GET", "http://localhost:5173", "");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 401 "));
  EXPECT_NE(refused.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
  const std::string fine = ask_raw("GET", "http://localhost:5173", "Authorization: Bearer secret-key-number-one\r\n");
  EXPECT_TRUE(fine.starts_with("HTTP/1.1 200 "));
  EXPECT_NE(fine.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
  for (const char* origin :
       {"http://localhost:5174", "https://localhost:5173", "null", "http://localhost:5173.evil", ""}) {
    EXPECT_EQ(ask_raw("GET", origin, "").find("Access-Control-Allow"), std::string::npos) << origin;
    EXPECT_EQ(ask_raw("OPTIONS", origin, asked).find("Access-Control-Allow"), std::string::npos) << origin;
  }
  EXPECT_EQ(raw(shared(), "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: http://a\r\n\r\n")
                .find("Access-Control"),
            std::string::npos);  // off unless asked for
  // A stream.
  Server open({}, h);
  auto r = chat();
  r["stream"] = true;
  const std::string body = r.dump();
  const std::string stream = raw(open,
                                 "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: "
                                 "http://localhost:5173\r\nContent-Length: " +
                                     std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_NE(stream.find("Access-Control-Allow-Origin: http://localhost:5173\r\n"), std::string::npos);
}

TEST(Http, KeysAndTheirLimits) {
  OperatorSettings o;
  o.keys = {{.name = "a", .key = "secret-key-number-one"},
            {.name = "b", .key = "secret-key-number-two", .requests_per_minute = 2}};
  Server s(o);
  auto with = [](const std::string& key) { return net::Headers{{"Authorization", key}}; };
  EXPECT_EQ(send(s, "GET", "/health").status, 200);
  for (const std::string bad : {"", "Bearer", "Bearer ", "Bearer x", "secret-key-number-one",
                                "Basic secret-key-number-one", "Bearer secret-key-number-one "}) {
    if (bad == "Bearer secret-key-number-one ") continue;  // white space around a field's value is none of it
    const Answer a = send(s, "GET", "/v1/models", "", with(bad));
    EXPECT_EQ(a.status, 401) << bad;
    EXPECT_EQ(a.json()["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", "{}").status, 401);  // before the body is looked at
  EXPECT_EQ(send(s, "GET", "/nowhere").status, 401);
  EXPECT_EQ(send(s, "GET", "/v1/models", "", with("Bearer secret-key-number-one")).status, 200);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-two")).status, 200);
  const Answer limited = send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-two"));
  EXPECT_EQ(limited.status, 429);
  ASSERT_NE(limited.raw.header("Retry-After"), nullptr);
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump(), with("Bearer secret-key-number-one")).status, 200);
  EXPECT_EQ(send(s, "GET", "/v1/training/jobs", "", with("Bearer secret-key-number-one")).status, 403);
}

// Nothing is taken from the queue until it is full: whatever the machine's speed, one more is one too many.
TEST(Http, AFullQueueSaysSo) {
  OperatorSettings o;
  o.max_queue = 2;
  Server s(o, {}, {.batch = 1}, /*begun=*/false);
  const auto waiting = [&] { return s.scheduler->stats().waiting; };
  std::vector<std::future<Answer>> first;
  for (int64_t i = 1; i <= o.max_queue; ++i) {
    first.push_back(
        std::async(std::launch::async, [&] { return send(s, "POST", "/v1/chat/completions", chat().dump()); }));
    ASSERT_TRUE(within(60, [&] { return waiting() == i; }));
  }
  for (const bool stream : {false, true}) {
    auto r = chat();
    r["stream"] = stream;
    const Answer a = send(s, "POST", "/v1/chat/completions", r.dump());
    EXPECT_EQ(a.status, 429) << a.body;
    EXPECT_EQ(a.json()["error"]["code"], "queue_full");
    EXPECT_NE(a.raw.header("Retry-After"), nullptr);
  }
  EXPECT_EQ(waiting(), o.max_queue);
  s.scheduler->start();
  for (auto& f : first) EXPECT_EQ(f.get().status, 200);
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", chat().dump()).status, 200);
}

TEST(Http, ClientsThatLeaveStopTheirRequests) {
  auto r = chat();
  r["max_tokens"] = 480;
  r["ignore_eos"] = true;
  for (const bool stream : {true, false}) {
    r["stream"] = stream;
    const std::string body = r.dump();
    const std::string request =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
        body;
    std::vector<int> fds;
    for (int i = 0; i < 6; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(shared().http->port());
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
      ASSERT_EQ(::send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
      fds.push_back(fd);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int fd : fds) {
      const linger hard{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      ::close(fd);
    }
    EXPECT_TRUE(within(60, [] {
      const auto stats = shared().scheduler->stats();
      return stats.running + stats.waiting == 0;
    }));
  }
  EXPECT_TRUE(alive());
}

TEST(Http, DrainLetsAnswersFinish) {
  auto s = std::make_unique<Server>();
  Answer a;
  std::thread t([&] {
    auto r = chat();
    r["max_tokens"] = 300;
    r["ignore_eos"] = true;
    r["stream"] = true;
    a = send(*s, "POST", "/v1/chat/completions", r.dump());
  });
  ASSERT_TRUE(within(60, [&] { return s->scheduler->stats().new_tokens > 0; }));
  s->op->set_draining();
  s->http->drain(30);
  t.join();
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(events(a.body).back()["choices"][0]["finish_reason"], "length");
}

TEST(Http, NothingLeaksBetweenRequests) {
  std::vector<std::string> alone;
  for (int i = 0; i < 12; ++i)
    alone.push_back(
        post("/v1/chat/completions", chat("question " + std::to_string(i))).json()["choices"][0]["message"]["content"]);
  std::vector<std::string> together(12);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 12; ++i)
    threads.emplace_back([&, i] {
      together[i] = send(shared(), "POST", "/v1/chat/completions", chat("question " + std::to_string(i)).dump())
                        .json()["choices"][0]["message"]["content"];
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(alone, together);
}

}  // namespace
}  // namespace mxt::serve::served
