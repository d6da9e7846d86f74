// Everything that can go wrong half-way, at every request of every service: the same command goes on, what was done
// is not done again, and whatever a service answers ends in one line.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "evm/abi.h"
#include "evm/anvil.h"
#include "net/fake_upload_hub.h"
#include "net/test_server.h"
#include "publish/ipfs/import.h"
#include "publish/steps.h"
#include "publish/support.h"

namespace mxt::publish {
namespace {

enum class Fault {
  kDown,      // the connection breaks, nothing was done
  kLost,      // it was done, and the connection breaks
  kCut,       // it was done, and half of the answer comes
  kError,     // 500, nothing was done
  kBusy,      // 503, nothing was done
  kRedirect,  // to another host
  kHuge,      // more than anybody reads
  kNonsense,  // 200 and no word of what is asked
  kOther,     // 200 and JSON of another shape
};
constexpr Fault kFaults[] = {Fault::kDown,     Fault::kLost, Fault::kCut,      Fault::kError, Fault::kBusy,
                             Fault::kRedirect, Fault::kHuge, Fault::kNonsense, Fault::kOther};

// Stands before a service and spoils one of its answers.
class Middle {
 public:
  explicit Middle(std::string service)
      : service_(std::move(service)), server_([this](const net::ServerRequest& r) { return answer(r); }) {}
  std::string url() const { return server_.url(); }
  // The request of this number, from 0, and as many more as a client tries again.
  void spoil(int number, Fault fault, int times = 1) {
    const std::lock_guard lock(mutex_);
    at_ = number, fault_ = fault, left_ = times, count_ = 0;
  }
  bool spoiled() const { return left_ == 0; }
  // Requests that were done and whose whole answer went back, by method and path.
  std::map<std::string, int> done;
  static net::TestServer& elsewhere() {
    static net::TestServer s([](const net::ServerRequest&) { return net::ServerResponse{200, {}, "{}"}; });
    return s;
  }

 private:
  net::ServerResponse forward(const net::ServerRequest& r) {
    net::HttpRequest q;
    q.method = r.method;
    q.url = service_ + r.target;
    q.body = r.body;
    q.redirects = q.retries = 0;
    for (const auto& [name, value] : r.headers)
      if (name != "host" && name != "content-length" && name != "connection" && name != "accept-encoding")
        q.headers.emplace_back(name, value);
    const net::HttpResponse a = net::HttpClient().send(q);
    net::ServerResponse out{a.status, {}, a.body};
    for (const auto& [name, value] : a.headers) {
      const bool own = name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection";
      if (!own) out.headers.emplace_back(name, value);
    }
    return out;
  }
  net::ServerResponse answer(const net::ServerRequest& r) {
    const std::lock_guard lock(mutex_);
    net::ServerResponse broken{200, {{"Content-Length", "100000"}}, "half"};
    const bool now = left_ > 0 && count_ >= at_;
    ++count_;
    if (!now) {
      net::ServerResponse a = forward(r);
      if (a.status < 300) ++done[r.method + " " + r.target.substr(0, r.target.find('?'))];
      return a;
    }
    --left_;
    switch (fault_) {
      case Fault::kDown:
        broken.cut_after = 0;
        return broken;
      case Fault::kLost:
        forward(r);
        broken.cut_after = 0;
        return broken;
      case Fault::kCut: {
        net::ServerResponse a = forward(r);
        a.cut_after = a.body.size() / 2;
        a.headers.emplace_back("Content-Length", std::to_string(a.body.size() + 1));
        return a;
      }
      case Fault::kError:
        return {500, {}, R"({"error":"spoiled \u0007 by the test"})"};
      case Fault::kBusy:
        return {503, {}, ""};
      case Fault::kRedirect:
        return {307, {{"Location", elsewhere().url("/x", "localhost")}}, ""};
      case Fault::kHuge:
        return {200, {}, "{\"a\":\"" + std::string(9 << 20, 'x') + "\"}"};
      case Fault::kNonsense:
        return {200, {}, "<html>\n<b>200\n"};
      case Fault::kOther:
        return {200, {}, R"([{"a":null},"\n"])"};
    }
    return broken;
  }

  std::string service_;
  std::mutex mutex_;
  int at_ = 0, left_ = 0, count_ = 0;
  Fault fault_ = Fault::kDown;
  net::TestServer server_;
};

Surroundings surroundings(const std::map<std::string, std::string>& variables = {}) {
  Surroundings s;
  s.variable = [variables](const std::string& name) {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  };
  s.hub.retry_base_seconds = s.http.retry_base_seconds = 0.001;
  s.poll_seconds = 0.02;
  return s;
}

// Publishes with one answer spoiled, then again: `check` says what has to hold then.
void halfway(Middle& m, const std::string& run, const Surroundings& s, const std::function<void()>& reset,
             const std::function<void()>& check) {
  for (const Fault fault : kFaults)
    for (const int times : {1, 100}) {  // once, and as often as is tried again
      for (int at = 0; at < 200; ++at) {
        SCOPED_TRACE(fmt::format("fault {} {} times at request {}", static_cast<int>(fault), times, at));
        const bool tried_again = fault == Fault::kDown || fault == Fault::kBusy;
        if (times > 1 && (at % 3 != 0 || !tried_again)) continue;
        if (times == 1 && (at + static_cast<int>(fault)) % 2 == 1) continue;  // half of them: minutes otherwise
        reset();
        fs::remove(run + "/publish.json");
        m.done.clear();
        m.spoil(at, fault, times);
        bool failed = false;
        try {
          publish(open_run(run), s, {}, false);
        } catch (const Error& e) {
          failed = true;
          const std::string what = e.what();
          EXPECT_EQ(what.find('\n'), std::string::npos) << what;
          EXPECT_EQ(what.find('\a'), std::string::npos) << what;
          EXPECT_LT(what.size(), 1500u) << what.substr(0, 2000);
          EXPECT_TRUE(e.code() == Exit::kBadInput || e.code() == Exit::kVerifyFailed) << what;
        }
        m.spoil(0, fault, 0);
        try {
          const auto again = publish(open_run(run), s, {}, false);
          if (!failed) {
            EXPECT_EQ(again[0].state, StepOutcome::State::kKept);
          }
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
        check();
        if (testing::Test::HasFailure()) return;
        if (times == 1 && !failed && at > 60) break;
        const auto total =
            std::accumulate(m.done.begin(), m.done.end(), 0, [](int n, const auto& d) { return n + d.second; });
        if (at > total) break;
      }
    }
  // Whoever follows to another host asks without what is the first one's alone, and sends nothing there.
  for (const net::ServerRequest& r : Middle::elsewhere().seen()) {
    EXPECT_TRUE(r.method == "GET" || r.method == "HEAD") << r.method;
    EXPECT_FALSE(r.headers.contains("authorization"));
  }
}

TEST(Halfway, AHub) {
  net::FakeUploadHub hub;
  hub.multipart_from = 200'000, hub.chunk = 100'000;
  Middle m(hub.url());
  hub.address = m.url();
  const FinishedRun f("publish: {hf: {repo: org/model}}\n");
  Surroundings s = surroundings();
  s.hub.endpoint = m.url();
  s.hub.token = "secret";
  const auto files = open_run(f.path()).files;
  halfway(
      m, f.path(), s,
      [&] {
        hub.files.clear();
        hub.objects.clear();
        hub.exists = false, hub.commits = 0, hub.head = std::string(40, '0');
      },
      [&] {
        for (const TreeEntry& e : files) EXPECT_TRUE(hub.files.contains(e.path)) << e.path;
        EXPECT_EQ(hub.commits, 1);
      });
}

// A node that pins what it takes; its id is what it was told to say.
struct PinningKubo {
  std::string cid;
  bool pinned = false;
  int added = 0;
  net::TestServer server{[this](const net::ServerRequest& r) {
    if (r.target.starts_with("/api/v0/pin/ls"))
      return pinned ? net::ServerResponse{200, {}, R"({"Keys":{")" + cid + R"(":{"Type":"recursive"}}})"}
                    : net::ServerResponse{500, {}, R"({"Message":"path is not pinned","Code":0,"Type":"error"})"};
    ++added;
    pinned = true;
    if (r.target.starts_with("/api/v0/dag/import"))
      return net::ServerResponse{200,
                                 {},
                                 R"({"Root":{"Cid":{"/":")" + cid +
                                     R"("},"PinErrorMsg":""}})"
                                     "\n"};
    return net::ServerResponse{200,
                               {},
                               R"({"Name":"run","Hash":")" + cid +
                                   R"(","Size":"9"})"
                                   "\n"};
  }};
};

TEST(Halfway, AKuboWithFilesAndWithBlocks) {
  for (const char* car : {"false", "true"}) {
    PinningKubo kubo;
    Middle m(kubo.server.url());
    const FinishedRun f("publish: {ipfs: {api_url: \"" + m.url() + "\", car: " + car + "}}\n");
    kubo.cid = import_tree(open_run(f.path()).files, {&unixfs_profile("kubo-v1")})[0].text();
    halfway(
        m, f.path(), surroundings(), [&] { kubo.pinned = false, kubo.added = 0; },
        [&] {
          EXPECT_EQ(kubo.added, 1) << "what the node has is not sent again";
          EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"]["ipfs"]["result"]["cid"], kubo.cid);
        });
  }
}

TEST(Halfway, Registers) {
  std::map<std::string, int> posts;
  net::TestServer server([&](const net::ServerRequest& r) {
    ++posts[r.target];
    return net::ServerResponse{
        200,
        {},
        r.target == "/v1/listings" ? R"({"listing_url":"https://place/l/1"})"
        : r.target == "/v1/subname"
            ? R"({"parent":"bankon.eth","subname":"tiny","full":"tiny.bankon.eth","tx_id":"0xab"})"
            : R"({"id":"agent-1"})"};
  });
  Middle m(server.url());
  const FinishedRun f("publish: {mindx: {}, agenticplace: {}, bankon: {subname: tiny}}\n");
  const auto s = surroundings({{"MINDX_API_URL", m.url()}, {"AGENTICPLACE_URL", m.url()}, {"BANKON_ENS_URL", m.url()}});
  halfway(
      m, f.path(), s, [&] { posts.clear(); },
      [&] {
        for (const auto& [target, n] : m.done) EXPECT_EQ(n, 1) << target << ": answered, and asked again";
        EXPECT_EQ(m.done.size(), 3u);
      });
}

TEST(Halfway, AnAnchorAndAnAgentOnAChain) {
  const auto chain = evm::Anvil::start();
  if (!chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  const evm::Address registry = chain->deploy("registry");
  const evm::Address publisher = evm::Anvil::account(1).address();
  Middle m(chain->url());
  const FinishedRun f(
      fmt::format("publish: {{evm: {{rpc_url: \"{}\", chain_id: 31337, confirmations: 1, registry: \"{}\"}}}}\n",
                  m.url(), evm::text_of(registry)));
  const auto s =
      surroundings({{"MINDXTRAIN_EVM_KEY", "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"}});
  std::string clean = chain->rpc().call("evm_snapshot", Json::array()).get<std::string>();
  halfway(
      m, f.path(), s,
      [&] {
        chain->rpc().call("evm_revert", {clean});
        clean = chain->rpc().call("evm_snapshot", Json::array()).get<std::string>();
      },
      [&] { EXPECT_EQ(chain->rpc().nonce(publisher), 1u) << "one transaction, whatever came between"; });
}

// A state that cannot be kept (a disk that is full): what the node has is found there, and not sent again.
TEST(Halfway, AStateThatCannotBeWritten) {
  PinningKubo kubo;
  const FinishedRun f("publish: {ipfs: {api_url: \"" + kubo.server.url() + "\"}}\n");
  kubo.cid = import_tree(open_run(f.path()).files, {&unixfs_profile("kubo-v1")})[0].text();
  make_folders(f.path() + "/publish.json/x");  // a folder in its place
  EXPECT_THROW(publish(open_run(f.path()), surroundings(), {}, false), Error);
  fs::remove_all(f.path() + "/publish.json");
  publish(open_run(f.path()), surroundings(), {}, false);
  EXPECT_EQ(kubo.added, 1);
}

}  // namespace
}  // namespace mxt::publish
