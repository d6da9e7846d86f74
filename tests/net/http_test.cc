#include "net/http.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "net/patience.h"
#include "net/test_server.h"
#include "net/transport.h"
#include "net/url.h"

namespace mxt::net {
namespace {

HttpClient quick() { return HttpClient({.retry_base_seconds = 0.01}); }

void expect_error(const std::function<void()>& f, Exit code, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; wanted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Url, PartsAndRefusals) {
  const auto u = parse_url("HTTPS://Example.COM:8443/a/b?c=d#e");
  ASSERT_TRUE(u);
  EXPECT_EQ(u->origin(), "https://example.com:8443");
  EXPECT_EQ(u->target, "/a/b?c=d");
  EXPECT_EQ(parse_url("http://h")->text(), "http://h/");
  EXPECT_EQ(parse_url("http://h?x")->target, "/?x");
  EXPECT_EQ(parse_url("http://[::1]:80/")->host, "[::1]");
  for (const char* bad : {"", "ftp://h/", "file:///etc/passwd", "http://", "http://h:0/", "http://h:99999/",
                          "http://a b/", "http://h/\n", "http://h\\@x/", "//h/"})
    EXPECT_FALSE(parse_url(bad)) << bad;
  const Url base = *parse_url("http://h:1/a/b?q");
  EXPECT_EQ(resolve_url(base, "/x")->text(), "http://h:1/x");
  EXPECT_EQ(resolve_url(base, "c")->text(), "http://h:1/a/c");
  EXPECT_EQ(resolve_url(base, "../c/./d?q=..")->text(), "http://h:1/c/d?q=..");
  EXPECT_EQ(resolve_url(base, "../../../c")->text(), "http://h:1/c");
  EXPECT_EQ(resolve_url(base, "c/..")->text(), "http://h:1/a/");
  EXPECT_EQ(resolve_url(base, "?z")->text(), "http://h:1/a/b?z");
  EXPECT_EQ(resolve_url(base, "//o/x")->text(), "http://o/x");
  EXPECT_EQ(resolve_url(base, "https://o/x")->text(), "https://o/x");
  EXPECT_FALSE(resolve_url(base, "javascript://x"));
  EXPECT_EQ(percent_encode("a b/ü", "/"), "a%20b/%C3%BC");
  EXPECT_EQ(percent_decode("a%20b%2F%C3%bc+"), "a b/ü+");
  for (const char* bad : {"%", "a%2", "%g0", "%0g", "% 1"}) EXPECT_FALSE(percent_decode(bad)) << bad;
}

TEST(Http, GetHeadPostAndRange) {
  TestServer s([](const ServerRequest& r) {
    ServerResponse a;
    a.headers = {{"X-Method", r.method}, {"x-two", "1"}, {"X-Two", "2"}};
    a.body = r.method == "POST" ? r.body : r.headers.contains("range") ? r.headers.at("range") : "hello";
    return a;
  });
  HttpClient c = quick();
  const HttpResponse get = c.send({.url = s.url("/a?b")});
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(get.body, "hello");
  EXPECT_EQ(*get.header("x-TWO"), "2");
  EXPECT_EQ(get.header("none"), nullptr);
  EXPECT_EQ(c.send({.method = "HEAD", .url = s.url("/")}).body, "");
  EXPECT_EQ(
      c.send(
           {.method = "POST", .url = s.url("/"), .headers = {{"Content-Type", "x/y"}}, .body = std::string("a\0b", 3)})
          .body,
      std::string("a\0b", 3));
  EXPECT_EQ(c.send({.url = s.url("/"), .range_begin = 5, .range_end = 9}).body, "bytes=5-9");
  EXPECT_EQ(s.seen()[0].target, "/a?b");
  EXPECT_EQ(s.seen()[0].headers.at("user-agent"), "mindxtrain");
}

TEST(Http, SecretsStayWithTheirOrigin) {
  TestServer other([](const ServerRequest&) { return ServerResponse{.body = "there"}; });
  TestServer s([&](const ServerRequest& r) {
    if (r.target == "/here") return ServerResponse{.body = "here"};
    return ServerResponse{.status = 302, .headers = {{"Location", r.target == "/away" ? other.url("/x") : "/here"}}};
  });
  HttpClient c = quick();
  const Headers secret{{"Authorization", "Bearer t"}, {"Cookie", "c"}, {"X-Plain", "p"}};
  EXPECT_EQ(c.send({.url = s.url("/near"), .headers = secret}).body, "here");
  EXPECT_EQ(s.seen().back().headers.at("authorization"), "Bearer t");
  const HttpResponse r = c.send({.url = s.url("/away"), .headers = secret});
  EXPECT_EQ(r.body, "there");
  EXPECT_EQ(r.url, other.url("/x"));
  const auto seen = other.seen().back().headers;
  EXPECT_FALSE(seen.contains("authorization") || seen.contains("cookie"));
  EXPECT_EQ(seen.at("x-plain"), "p");
  EXPECT_EQ(c.send({.url = s.url("/away"), .leave_origin = false}).status, 302);
  EXPECT_EQ(c.send({.url = s.url("/near"), .redirects = 0}).status, 302);
}

TEST(Http, RedirectsEndAndKeepOrChangeTheMethod) {
  TestServer s([](const ServerRequest& r) {
    if (r.target == "/end") return ServerResponse{.body = r.method + r.body};
    if (r.target == "/bad") return ServerResponse{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}};
    if (r.target == "/307") return ServerResponse{.status = 307, .headers = {{"Location", "/end"}}};
    if (r.target == "/303") return ServerResponse{.status = 303, .headers = {{"Location", "/end"}}};
    return ServerResponse{.status = 301, .headers = {{"Location", "/loop"}}};
  });
  HttpClient c = quick();
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/307"), .body = "b"}).body, "POSTb");
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/303"), .body = "b"}).body, "GET");
  // Who must know that a thing was sent takes no page for its answer.
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/303"), .body = "b", .leave_origin = false}).status, 303);
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/301"), .body = "b", .leave_origin = false}).status, 301);
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/307"), .body = "b", .leave_origin = false}).body, "POSTb");
  EXPECT_EQ(c.send({.url = s.url("/303"), .leave_origin = false}).body, "GET");
  expect_error([&] { c.send({.url = s.url("/loop")}); }, Exit::kBadInput, "more than 5 redirects");
  expect_error([&] { c.send({.url = s.url("/bad")}); }, Exit::kBadInput, "no http or https");
}

TEST(Http, ALargeBodyIsGivenTimeToBeWorkedOn) {
  HttpRequest small{.method = "POST", .body = "b"}, large{.method = "POST", .parts = {{"", "model", 0, 15ull << 30}}};
  give_time(small);
  give_time(large);
  EXPECT_NEAR(small.idle_seconds, 120, 1);
  EXPECT_NEAR(large.idle_seconds, 120 + 960, 1);
  EXPECT_GT(large.total_seconds, 200'000);
  large.total_seconds = 5;
  give_time(large);
  EXPECT_EQ(large.total_seconds, 5);
}

TEST(Http, RetriesWhatPassesAndOnlyThat) {
  int calls = 0;
  TestServer s([&](const ServerRequest& r) {
    ++calls;
    if (r.target == "/always") return ServerResponse{.status = 503};
    if (r.target == "/never") return ServerResponse{.status = 404};
    return ServerResponse{.status = calls < 3 ? 500 : 200, .body = "ok"};
  });
  HttpClient c = quick();
  std::string got;
  EXPECT_EQ(c.send({.url = s.url("/"), .on_data = [&](std::string_view d) { got += d; }}).status, 200);
  EXPECT_EQ(got, "ok");
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_EQ(c.send({.url = s.url("/always"), .retries = 2}).status, 503);
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_EQ(c.send({.url = s.url("/never")}).status, 404);
  EXPECT_EQ(c.send({.method = "POST", .url = s.url("/always")}).status, 503);  // might act twice
  EXPECT_EQ(calls, 2);
}

TEST(Http, WhatActsIsSentOnceThoughAKeptConnectionEndsWithoutAByte) {
  TestServer s([](const ServerRequest& r) { return ServerResponse{.status = r.target == "/ends" ? 0 : 200}; });
  HttpClient c = quick();
  EXPECT_EQ(c.send({.url = s.url("/")}).status, 200);  // its connection is kept
  EXPECT_THROW(c.send({.method = "POST", .url = s.url("/ends"), .body = "b"}), Error);
  EXPECT_EQ(s.count("POST", "/ends"), 1u);
  EXPECT_EQ(c.send({.url = s.url("/")}).status, 200);
  EXPECT_THROW(c.send({.method = "POST", .url = s.url("/ends"), .body = "b", .retries = 1, .repeatable = true}), Error);
  EXPECT_GT(s.count("POST", "/ends"), 2u) << "what may be repeated is";
}

TEST(Http, TrailersFollowTheHeadAndChangeNothingOfIt) {
  TestServer s([](const ServerRequest&) {
    return ServerResponse{.headers = {{"Transfer-Encoding", "chunked"}, {"X-Head", "head"}},
                          .body = "5\r\nwhole\r\n0\r\nX-Late: late\r\nX-Head: other\r\n\r\n"};
  });
  HttpClient c = quick();
  for (int i = 0; i < 2; ++i) {  // over one connection
    const HttpResponse r = c.send({.url = s.url("/")});
    EXPECT_EQ(r.body, "whole");
    ASSERT_NE(r.header("x-late"), nullptr);
    EXPECT_EQ(*r.header("x-late"), "late");
    EXPECT_EQ(*r.header("X-Head"), "head");
  }
}

TEST(Http, LimitsHold) {
  TestServer s([](const ServerRequest& r) {
    ServerResponse a;
    if (r.target == "/headers")
      for (int i = 0; i < 20; ++i) a.headers.emplace_back("X-" + std::to_string(i), std::string(20'000, 'h'));
    a.body = std::string(100'000, 'x');
    if (r.target == "/slow") a.delay_ms = 800;
    if (r.target == "/busy") a.status = 503, a.headers = {{"Retry-After", "20"}};
    return a;
  });
  HttpClient c = quick();
  expect_error([&] { c.send({.url = s.url("/"), .max_bytes = 99'999}); }, Exit::kBadInput, "larger than");
  EXPECT_EQ(c.send({.url = s.url("/"), .max_bytes = 100'000}).body.size(), 100'000u);
  EXPECT_THROW(c.send({.url = s.url("/headers"), .retries = 0}), Error);
  expect_error([&] { c.send({.url = s.url("/slow"), .total_seconds = 0.2, .retries = 0}); }, Exit::kMissing,
               "cannot be reached");
  // The whole time is that of all tries.
  const size_t before = s.count("GET", "/slow");
  expect_error([&] { c.send({.url = s.url("/slow"), .total_seconds = 0.2, .retries = 4}); }, Exit::kMissing,
               "time is out");
  EXPECT_EQ(s.count("GET", "/slow"), before + 1);
  // The second try has what the first one left, not its own 0.7 s.
  const auto asked = std::chrono::steady_clock::now();
  expect_error([&] { c.send({.url = s.url("/slow"), .idle_seconds = 0.7, .total_seconds = 1, .retries = 4}); },
               Exit::kMissing, "time is out");
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::milliseconds(1350));
  // A wait that the server asks for counts, too: what would be over before it ends is over now.
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(c.send({.url = s.url("/busy"), .total_seconds = 5}).status, 503);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(s.count("GET", "/busy"), 1u);
  std::atomic<bool> cancel{true};
  HttpClient stopped({.cancel = &cancel});
  expect_error([&] { stopped.send({.url = s.url("/slow")}); }, Exit::kInterrupted, "interrupted");
  // A long wait is said, and ends when the program is asked to.
  std::atomic<bool> later{false};
  TestServer busy([](const ServerRequest&) { return ServerResponse{503, {{"Retry-After", "20"}}, ""}; });
  std::jthread ender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    later = true;
  });
  HttpClient waiting({.cancel = &later});
  testing::internal::CaptureStderr();
  expect_error([&] { waiting.send({.url = busy.url("/")}); }, Exit::kInterrupted, "interrupted");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(busy.url() + ": answers 503, and is asked again in 20 s; Ctrl-C"), std::string::npos) << line;
  struct Stop {};
  EXPECT_THROW(c.send({.url = s.url("/"), .on_data = [](std::string_view) { throw Stop{}; }}), Stop);
}

TEST(Http, AnAnswerThatDripsIsGivenUpAndNotAskedForAgain) {
  TestServer s([](const ServerRequest& r) {
    ServerResponse a;
    a.body = std::string(r.target == "/large" ? 200'000 : 100, 'x');
    if (r.target == "/drip") a.drip_ms = 50;
    if (r.target == "/drip/head") a.drip_head_ms = 50;
    return a;
  });
  HttpClient c = quick();
  const auto began = std::chrono::steady_clock::now();
  for (const char* target : {"/drip", "/drip/head"})
    expect_error([&] { c.send({.url = s.url(target), .answer_seconds = 0.3}); }, Exit::kMissing, "answers too slowly");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3)) << "5 and 2 s for the whole of them";
  EXPECT_EQ(s.count("GET", "/drip"), 2u);
  EXPECT_EQ(c.send({.url = s.url("/large"), .answer_seconds = 0.3}).body.size(), 200'000u);
  HttpRequest small, model;
  small.method = model.method = "POST";
  model.parts = {{"", "/nowhere", 0, uint64_t{15} << 30}};
  give_time(small);
  give_time(model);
  EXPECT_NEAR(small.answer_seconds, 30, 1);
  EXPECT_NEAR(model.answer_seconds, 30 + 960, 1) << "a node says a line for each file that it has worked on";
}

TEST(Http, AProxyIsAskedByTheWholeAddressAndNotForItsExceptions) {
  TestServer proxy([](const ServerRequest& r) { return ServerResponse{.body = r.target}; });
  HttpClient c({.proxies = {.http = "http://user:p%40ss@127.0.0.1:" + std::to_string(proxy.port()),
                            .none = "direct.test, .example.org"},
                .retry_base_seconds = 0.01});
  EXPECT_EQ(c.send({.url = "http://nowhere.test/a?b"}).body, "http://nowhere.test/a?b");
  EXPECT_EQ(proxy.seen().back().headers.at("proxy-authorization"), "Basic dXNlcjpwQHNz");
  expect_error([&] { c.send({.url = "http://a.direct.test/", .retries = 0}); }, Exit::kMissing, "a.direct.test");
  HttpClient nowhere({.proxies = {.https = "http://user:secret@127.0.0.1:9"}, .retry_base_seconds = 0.01});
  try {
    nowhere.send({.url = "https://example.com/x", .retries = 0});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("its proxy 127.0.0.1:9"), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find("secret"), std::string::npos);
  }
  HttpClient socks({.proxies = {.http = "socks5://127.0.0.1:1"}});
  expect_error([&] { socks.send({.url = "http://nowhere.test/"}); }, Exit::kBadInput, "only http:// proxies");
  EXPECT_TRUE(goes_direct("*", "h") && goes_direct("a,h", "H") && goes_direct(".b.c", "a.b.c") &&
              goes_direct("b.c", "a.b.c"));
  EXPECT_FALSE(goes_direct("", "h") || goes_direct("b.c", "ab.c") || goes_direct("a.b.c", "b.c"));
}

TEST(Http, AProxyNeverSeesThisMachinesOwnRequestsNorThoseOfAnotherScheme) {
  TestServer proxy([](const ServerRequest&) { return ServerResponse{.body = "proxy"}; });
  TestServer direct([](const ServerRequest&) { return ServerResponse{.body = "direct"}; });
  const std::string by = "http://127.0.0.1:" + std::to_string(proxy.port());
  HttpClient c({.proxies = {.https = by, .http = by}, .retry_base_seconds = 0.01});
  EXPECT_EQ(c.send({.url = direct.url("/")}).body, "direct");
  EXPECT_EQ(c.send({.url = direct.url("/", "localhost")}).body, "direct");
  for (const char* host : {"localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"})
    EXPECT_TRUE(is_this_machine(host)) << host;
  for (const char* host : {"localhost.example.org", "mylocalhost", "128.0.0.1", "10.0.0.1", "::2", ""})
    EXPECT_FALSE(is_this_machine(host)) << host;
  // A prompt in clear text does not go to who was named for https alone.
  HttpClient https_only({.proxies = {.https = by}, .retry_base_seconds = 0.01});
  expect_error([&] { https_only.send({.url = "http://nowhere.test/", .retries = 0}); }, Exit::kMissing, "nowhere.test");
  EXPECT_TRUE(proxy.seen().empty());
}

TEST(Http, TheUserOfAnAddressIsSentToItsOriginAndNeverShown) {
  TestServer other([](const ServerRequest&) { return ServerResponse{.body = "other"}; });
  TestServer s([&](const ServerRequest& r) {
    if (r.target == "/away") return ServerResponse{.status = 302, .headers = {{"Location", other.url("/")}}};
    if (r.target == "/near") return ServerResponse{.status = 302, .headers = {{"Location", "/there"}}};
    return ServerResponse{.status = r.target == "/gone" ? 503 : 200, .body = "ok"};
  });
  const auto with_user = [&](const std::string& target) {
    return "http://me:p%40ss%2F@127.0.0.1:" + std::to_string(s.port()) + target;
  };
  HttpClient c = quick();
  EXPECT_EQ(c.send({.url = with_user("/near")}).url, s.url("/there"));
  EXPECT_EQ(s.seen().back().headers.at("authorization"), "Basic bWU6cEBzcy8=");
  EXPECT_EQ(c.send({.url = with_user("/"), .headers = {{"Authorization", "Bearer b"}}}).status, 200);
  EXPECT_EQ(s.seen().back().headers.at("authorization"), "Bearer b");
  EXPECT_EQ(c.send({.url = with_user("/away")}).body, "other");
  EXPECT_EQ(other.seen().back().headers.count("authorization"), 0u);
  for (const char* bad : {"http://me:p@ss@127.0.0.1:1/x", "ftp://me:p@ss@host/", "http://me:p@ss@", "me:p@ss"}) try {
      c.send({.url = bad, .retries = 0});
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("p@ss"), std::string::npos) << e.what();
    }
  EXPECT_EQ(shown_url("https://u:p@h/a@b"), "https://h/a@b");
  EXPECT_EQ(shown_url("https://h/?q=a@b"), "https://h/?q=a@b");
  expect_error([] { public_url("https://u:p@h/", "api_url"); }, Exit::kBadInput,
               "api_url: https://h:443 is written with");
}

TEST(Http, BadRequestsAndDeadServers) {
  HttpClient c = quick();
  expect_error([&] { c.send({.url = "file:///etc/passwd"}); }, Exit::kBadInput, "not an http");
  expect_error([&] { c.send({.url = "http://127.0.0.1:1/", .headers = {{"A", "b\r\nC: d"}}}); }, Exit::kBadInput,
               "line break");
  expect_error([&] { c.send({.url = "http://127.0.0.1:1/", .retries = 1}); }, Exit::kMissing, "cannot be reached");
}

}  // namespace
}  // namespace mxt::net
