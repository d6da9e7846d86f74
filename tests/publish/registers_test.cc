// Registers: exact requests, answers that are not what was asked for, agents on a real node (anvil).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "evm/anvil.h"
#include "net/test_server.h"
#include "publish/evm/agent.h"
#include "publish/support.h"

namespace mxt::publish {
namespace {

constexpr const char* kKey = "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";

Surroundings around(const std::map<std::string, std::string>& variables = {}) {
  Surroundings s;
  s.variable = [variables](const std::string& name) {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  };
  s.poll_seconds = 0.05;
  s.http.retry_base_seconds = 0.01;
  return s;
}

Exit code_of(const std::function<void()>& f, const std::string& part) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.code();
  }
  return Exit::kOk;
}

TEST(Registers, AreToldExactlyWhatADryRunPrintsAndOnce) {
  net::TestServer server([](const net::ServerRequest& r) {
    return net::ServerResponse{
        200,
        {{"Content-Type", "application/json"}},
        r.target == "/v1/listings" ? R"({"listing_url":"https://place/l/1"})"
        : r.target == "/v1/subname"
            ? R"({"parent":"bankon.eth","subname":"tiny","full":"tiny.bankon.eth","tx_id":"0xab"})"
            : R"({"id":"agent-1","secret":{}})"};
  });
  const auto s = around(
      {{"MINDX_API_URL", server.url()}, {"AGENTICPLACE_URL", server.url()}, {"BANKON_ENS_URL", server.url() + "/"}});
  const FinishedRun f("publish: {mindx: {}, agenticplace: {}, bankon: {subname: tiny}}\n");
  const auto planned = publish(open_run(f.path()), s, {}, true);
  EXPECT_TRUE(server.seen().empty());
  const auto done = publish(open_run(f.path()), s, {}, false);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].result, (OrderedJson{{"id", "agent-1"}}));
  EXPECT_EQ(done[1].result, (OrderedJson{{"listing_url", "https://place/l/1"}}));
  EXPECT_EQ(done[2].result, (OrderedJson{{"name", "tiny.bankon.eth"}, {"tx", "0xab"}}));
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(planned[i].result["sends"], "POST " + server.url() + seen[i].target);
    EXPECT_EQ(planned[i].result["body"], seen[i].body);
    EXPECT_EQ(seen[i].headers.at("idempotency-key").size(), 64u);
  }
  EXPECT_EQ(seen[2].body, R"({"parent":"bankon.eth","subname":"tiny"})");
  publish(open_run(f.path()), s, {}, false);
  EXPECT_EQ(server.seen().size(), 3u);
}

TEST(Registers, AnotherNameOrNoAnswerIsAnError) {
  std::string body = R"({"full":"other.bankon.eth","tx_id":"0xab"})";
  int status = 200;
  net::TestServer server([&](const net::ServerRequest&) {
    return net::ServerResponse{status, {{"Content-Type", "application/json"}}, body};
  });
  const FinishedRun f("publish: {bankon: {subname: tiny}}\n");
  const auto doing = [&] { publish(open_run(f.path()), around({{"BANKON_ENS_URL", server.url()}}), {}, false); };
  EXPECT_EQ(code_of(doing, "tiny.bankon.eth was asked for"), Exit::kVerifyFailed);
  body = "{}";
  EXPECT_EQ(code_of(doing, "has no full"), Exit::kBadInput);
  status = 422;
  body = R"({"detail":"the name is taken"})";
  EXPECT_EQ(code_of(doing, "the name is taken"), Exit::kBadInput);
  const FinishedRun wrong("publish: {bankon: {subname: \"Tiny Name\"}}\n");
  EXPECT_EQ(code_of([&] { publish(open_run(wrong.path()), around(), {}, true); }, "publish.bankon.subname"),
            Exit::kBadInput);
}

struct AgentChain {
  std::unique_ptr<evm::Anvil> chain = evm::Anvil::start();
  evm::Address registry{};
  AgentChain() {
    if (chain) registry = chain->deploy("test_identity");
  }
  std::string section(const std::string& more = "") const {
    return fmt::format(
        "publish: {{evm: {{rpc_url: \"{}\", chain_id: 31337, confirmations: 1, identity_registry: \"{}\"{}}}}}\n",
        chain->url(), evm::text_of(registry), more);
  }
};

TEST(Agent, IsRegisteredOnceWithTheManifestsDigest) {
  AgentChain a;
  if (!a.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  const FinishedRun f(a.section());
  const auto s = around({{"MINDXTRAIN_EVM_KEY", kKey}});
  const auto planned = publish(open_run(f.path()), s, {}, true)[0].result;
  const auto done = publish(open_run(f.path()), s, {}, false);
  ASSERT_EQ(done[0].name, "erc8004");
  EXPECT_EQ(done[0].result["agent_id"], "1");
  EXPECT_EQ(done[0].result["digest"], "0x" + sha256_hex(read_file(f.path() + "/manifest.json")));
  const Json mined = a.chain->rpc().call("eth_getTransactionByHash", Json::array({done[0].result["tx"]}));
  EXPECT_EQ(mined["input"], planned["data"].get<std::string>());
  EXPECT_EQ(Json::parse(planned["registration"].get<std::string>())["name"], "tiny");
  fs::remove(f.path() + "/publish.json");
  const auto again = publish(open_run(f.path()), s, {}, false);
  EXPECT_EQ(again[0].result["agent_id"], "1");
  EXPECT_FALSE(again[0].result.contains("tx"));

  const FinishedRun other(a.section(", agent_id: 1"));
  EXPECT_TRUE(publish(open_run(other.path()), s, {}, false)[0].result.contains("tx"));
  const FinishedRun stranger(a.section(", agent_id: 7"));
  EXPECT_EQ(code_of([&] { publish(open_run(stranger.path()), s, {}, false); }, "not authorized"), Exit::kBadInput);
}

}  // namespace
}  // namespace mxt::publish
