// Coach's API over real sockets with a desk that the test makes: who may ask, what is refused, what a stream looks
// like.
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "client.h"
#include "net/http.h"
#include "serve/api_error.h"
#include "serve/coach/access.h"
#include "serve/coach/coach.h"
#include "serve/coach/page.h"
#include "serve/http/server.h"
#include "serve/operator.h"

namespace mxt::serve {
namespace {

class Desk final : public Coach {
 public:
  std::atomic<int> asked{0};
  std::string last;
  std::string say(const std::string& what) {
    ++asked;
    last = what;
    return R"({"said":true})";
  }
  std::string about() override { return say("about"); }
  std::string recipes() override { return say("recipes"); }
  std::string recipe(const std::string& name) override {
    if (name != "one") fail_input("no recipe \"{}\"", name);
    return say("recipe " + name);
  }
  std::string schema() override { return say("schema"); }
  std::string check(const std::string& recipe) override { return say("check " + recipe); }
  std::string plan(const std::string& recipe, const std::string& device) override {
    if (recipe.empty()) fail_missing("the model is not here");
    return say("plan " + recipe + " " + device);
  }
  std::string preflight(const std::string& recipe) override { return say("preflight " + recipe); }
  std::string preview(const std::string&, int64_t row) override { return say("preview " + std::to_string(row)); }
  std::string runs() override { return say("runs"); }
  std::string run(const std::string& key) override {
    if (key != "7") refuse_status(404, "invalid_request_error", "run_not_found", "there is no such run");
    return say("run " + key);
  }
  std::string run_plan(const std::string& key) override { return say("plan of " + key); }
  std::string run_samples(const std::string& key, int64_t step) override {
    return say("samples of " + key + " " + std::to_string(step));
  }
  std::string run_row(const std::string& key, int64_t row) override {
    return say("row " + key + " " + std::to_string(row));
  }
  std::string run_manifest(const std::string& key) override { return say("manifest " + key); }
  std::string run_log(const std::string& key) override { return say("log " + key); }
  std::string note_run(const std::string& key, const std::string& change) override {
    return say("note " + key + " " + change);
  }
  std::string remove_run(const std::string& key) override { return say("remove " + key); }
  std::string compare(const std::string& a, const std::string& b) override { return say("compare " + a + " " + b); }
  std::pair<std::vector<std::string>, bool> events(const std::string&, size_t line) override {
    if (line == 0) return {{R"({"step":1})", R"({"step":2})"}, false};
    return {{}, true};
  }
  std::string verify(const std::string& manifest) override {
    if (manifest == "bad") fail_verify("it does not hold");
    return say("verify");
  }
  std::string start_trial(const std::string& key) override { return say("trial " + key); }
  std::string trial() override { return say("trial"); }
  std::string stop_trial() override { return say("stop"); }
  std::string trial_address(const std::string&, std::string&) override {
    refuse_status(409, "invalid_request_error", "no_trial", "no run's models are loaded");
  }
};

struct Server {
  Desk desk;
  std::unique_ptr<Operator> op;
  std::unique_ptr<HttpServer> http;
  explicit Server(OperatorSettings settings = {}) {
    op = std::make_unique<Operator>(ServedModel{}, std::move(settings), nullptr, &desk);
    http = std::make_unique<HttpServer>(
        HttpSettings{}, [this](const auto& r) { return op->gate(r); },
        [this](const auto& r, auto reply) { op->handle(r, std::move(reply)); });
    http->start();
  }
  ~Server() {
    op->set_draining();
    http->drain(0);
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(http->port()); }
};

Answer send(const Server& s, const std::string& method, const std::string& path, const std::string& body = "",
            net::Headers headers = {}) {
  return ask("http://" + s.host(), method, path, body, std::move(headers));
}

TEST(Coach, CallsReachTheDesk) {
  Server s;
  EXPECT_EQ(send(s, "GET", "/coach/api/about").status, 200);
  EXPECT_EQ(send(s, "GET", "/coach/api/recipes/one").status, 200);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", R"({"recipe":"a: 1"})").status, 200);
  EXPECT_EQ(s.desk.last, "check a: 1");
  EXPECT_EQ(send(s, "POST", "/coach/api/plan", R"({"recipe":"x","device":"h100"})").status, 200);
  EXPECT_EQ(s.desk.last, "plan x h100");
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/row?row=12").status, 200);
  EXPECT_EQ(s.desk.last, "row 7 12");
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/samples?step=3").status, 200);
  EXPECT_EQ(s.desk.last, "samples of 7 3");
  EXPECT_EQ(send(s, "GET", "/coach/api/compare?a=7&b=8").status, 200);
  EXPECT_EQ(s.desk.last, "compare 7 8");
}

TEST(Coach, RefusalsSayWhy) {
  Server s;
  EXPECT_EQ(send(s, "GET", "/coach/api/recipes/none").status, 400);
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/8").status, 404);
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/row?row=-1").status, 400);
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/row?row=x").status, 400);
  EXPECT_EQ(send(s, "GET", "/coach/api/nothing").status, 404);
  EXPECT_EQ(send(s, "DELETE", "/coach/api/recipes", "", {{"Content-Type", "application/json"}}).status, 404);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", "{").status, 400);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", R"({"recipe":3})").status, 400);
  EXPECT_EQ(send(s, "POST", "/coach/api/preview", R"({"recipe":"x","row":64})").status, 400);
  const Answer missing = send(s, "POST", "/coach/api/plan", R"({"recipe":""})");
  EXPECT_EQ(missing.status, 424);
  EXPECT_EQ(missing.json()["error"]["code"], "missing");
  EXPECT_EQ(send(s, "POST", "/coach/api/verify", R"({"manifest":"bad"})").status, 422);
  EXPECT_EQ(send(s, "POST", "/coach/api/trial/chat", R"({"model":"base"})").status, 409);
  EXPECT_EQ(send(s, "POST", "/coach/api/jobs", "{}").status, 501);  // this server has none
  EXPECT_EQ(send(s, "POST", "/v1/chat/completions", "{}").json()["error"]["code"], "no_model");
}

TEST(Coach, WhatIsSaidOfARun) {
  Server s;
  EXPECT_EQ(send(s, "POST", "/coach/api/runs/7/note", R"({"name":"x"})").status, 200);
  EXPECT_EQ(s.desk.last, R"(note 7 {"name":"x"})");
  EXPECT_EQ(send(s, "POST", "/coach/api/runs/7/delete", "{}").status, 200);
  EXPECT_EQ(s.desk.last, "remove 7");
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/delete").status, 404);
  EXPECT_EQ(send(s, "POST", "/coach/api/runs/7/delete", "{}", {{"Origin", "http://evil.example"}}).status, 403);
}

TEST(Coach, PathsCannotClimb) {
  Server s;
  for (const char* path : {"/coach/../etc/passwd", "/coach/assets/../../etc/passwd", "/coach/%2e%2e/etc/passwd",
                           "/coach//etc/passwd", "/coach/index.html/../x"}) {
    const int status = send(s, "GET", path).status;
    EXPECT_TRUE(status == 404 || (status == 503 && page_files().empty())) << path << " " << status;
  }
  for (const char* path :
       {"/coach/api/runs/..%2f..%2fetc", "/coach/api/runs/../../etc/passwd", "/coach/api/recipes/../one"}) {
    const int status = send(s, "GET", path).status;
    EXPECT_TRUE(status == 404 || status == 400) << path << " " << status;
  }
}

TEST(Coach, WithoutATokenOnlyThisMachineMayAsk) {
  EXPECT_TRUE(is_loopback_host("localhost"));
  EXPECT_TRUE(is_loopback_host("LOCALHOST:8000"));
  EXPECT_TRUE(is_loopback_host("127.0.0.1:1"));
  EXPECT_TRUE(is_loopback_host("[::1]:8000"));
  for (const char* host : {"", "example.org", "127.0.0.1.example.org", "localhost.example.org", "[::2]", "[::1",
                           "0.0.0.0", "10.0.0.1", "127.1.x.1"})
    EXPECT_FALSE(is_loopback_host(host)) << host;

  Server s;
  // DNS rebinding: the name is foreign, the address ours.
  for (const char* path : {"/coach/", "/coach/api/about", "/coach/api/runs"})
    EXPECT_EQ(send(s, "GET", path, "", {{"Host", "evil.example:8000"}}).status, 403) << path;
  EXPECT_EQ(s.desk.asked, 0);
  // Another site's page, in every way that a browser lets it try.
  const std::string body = R"({"recipe":"x"})";
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Origin", "http://evil.example"}}).status, 403);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Origin", "null"}}).status, 403);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Origin", "http://127.0.0.1:1"}}).status,
            403);  // another port is another site
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Sec-Fetch-Site", "cross-site"}}).status, 403);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Content-Type", "text/plain"}}).status, 415);
  EXPECT_EQ(send(s, "POST", "/coach/api/check", body, {{"Content-Type", "application/x-www-form-urlencoded"}}).status,
            415);
  EXPECT_EQ(s.desk.asked, 0);
  EXPECT_EQ(
      send(s, "POST", "/coach/api/check", body, {{"Origin", "http://" + s.host()}, {"Sec-Fetch-Site", "same-origin"}})
          .status,
      200);
}

TEST(Coach, BeyondThisMachineATokenIsRequired) {
  OperatorSettings open;
  open.local = false;
  Server anyone(open);
  for (const char* path : {"/coach/", "/coach/api/about"}) EXPECT_EQ(send(anyone, "GET", path).status, 403) << path;
  EXPECT_EQ(anyone.desk.asked, 0);

  OperatorSettings o;
  o.local = false;
  o.keys = {{.name = "a", .key = "a-key-that-may-run-jobs", .jobs = true},
            {.name = "b", .key = "a-key-that-may-only-chat"}};
  Server s(o);
  EXPECT_EQ(send(s, "GET", "/coach/api/about").status, 401);
  EXPECT_EQ(send(s, "GET", "/coach/api/about", "", {{"Authorization", "Bearer wrong-key-wrong-key"}}).status, 401);
  EXPECT_EQ(send(s, "GET", "/coach/api/about", "", {{"Authorization", "Bearer a-key-that-may-only-chat"}}).status, 403);
  EXPECT_EQ(send(s, "GET", "/coach/api/runs/7/events").status, 401);
  EXPECT_EQ(s.desk.asked, 0);
  EXPECT_EQ(send(s, "GET", "/coach/api/about", "",
                 {{"Authorization", "Bearer a-key-that-may-run-jobs"}, {"Host", "trainer.example"}})
                .status,
            200);
  const int page = send(s, "GET", "/coach/").status;  // no secret: it asks for the token
  EXPECT_EQ(page, page_files().empty() ? 503 : 200);
}

TEST(Coach, EventsEndWithTheRun) {
  Server s;
  const Answer a = send(s, "GET", "/coach/api/runs/7/events");
  EXPECT_EQ(a.status, 200);
  EXPECT_NE(a.raw.header("Content-Type")->find("text/event-stream"), std::string::npos);
  EXPECT_EQ(a.body.find("data: {\"step\":1}\n\ndata: {\"step\":2}\n\n"), 0u);
  EXPECT_TRUE(a.body.ends_with("event: end\ndata: {\"said\":true}\n\ndata: [DONE]\n\n"));
}

TEST(Coach, ThePageIsWholeAndStrict) {
  Server s;
  EXPECT_EQ(send(s, "GET", "/coach").status, 308);
  const Answer a = send(s, "GET", "/coach/");
  if (page_files().empty()) {
    EXPECT_EQ(a.status, 503);
    EXPECT_NE(a.body.find("./dev build"), std::string::npos);
    GTEST_SKIP() << "web/dist was not there when this was built: the page is not in it";
  }
  EXPECT_EQ(a.status, 200);
  EXPECT_NE(a.body.find("<title>Coach</title>"), std::string::npos);
  const std::string* policy = a.raw.header("Content-Security-Policy");
  ASSERT_NE(policy, nullptr);
  EXPECT_EQ(policy->find("unsafe"), std::string::npos);
  EXPECT_EQ(policy->find("http"), std::string::npos);
  EXPECT_NE(policy->find("frame-ancestors 'none'"), std::string::npos);
  for (const PageFile& f : page_files()) {
    const Answer whole = send(s, "GET", "/coach/" + std::string(f.path));
    EXPECT_EQ(whole.status, 200) << f.path;
    // What is kept inflates to what is sent.
    const uint8_t* end = reinterpret_cast<const uint8_t*>(f.gzip.data() + f.gzip.size());
    const uint32_t size = end[-4] | end[-3] << 8 | end[-2] << 16 | static_cast<uint32_t>(end[-1]) << 24;
    EXPECT_EQ(whole.body.size(), size) << f.path;
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(whole.body.data()), static_cast<uInt>(whole.body.size())),
              end[-8] | end[-7] << 8 | end[-6] << 16 | static_cast<uint32_t>(end[-5]) << 24)
        << f.path;
  }
  EXPECT_EQ(send(s, "POST", "/coach/", "{}").status, 405);
}

}  // namespace
}  // namespace mxt::serve
