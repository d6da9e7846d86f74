// Registers: exact requests, answers that are not what was asked for, agents on a real node (anvil).
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/hash.h"
#include "evm/abi.h"
#include "evm/anvil.h"
#include "evm/keccak.h"
#include "net/test_server.h"
#include "publish/evm/agent.h"
#include "publish/evm/domain.h"
#include "publish/evm/name.h"
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
    EXPECT_EQ(planned[i].result["headers"]["Idempotency-Key"], seen[i].headers.at("idempotency-key"));
    EXPECT_EQ(seen[i].headers.at("idempotency-key").size(), 64u);
  }
  EXPECT_EQ(seen[2].body, R"({"parent":"bankon.eth","subname":"tiny"})");
  publish(open_run(f.path()), s, {}, false);
  EXPECT_EQ(server.seen().size(), 3u);
}

TEST(Registers, ADryRunKnowsWhereEarlierStepsWillPutTheRun) {
  net::TestServer server([](const net::ServerRequest& r) {
    if (r.target.starts_with("/api/v0/pin/ls")) {
      const std::string cid = r.target.substr(r.target.find("arg=") + 4, 59);
      return net::ServerResponse{200, {}, R"({"Keys":{")" + cid + R"(":{"Type":"recursive"}}})"};
    }
    return net::ServerResponse{200, {{"Content-Type", "application/json"}}, R"({"id":"agent-1"})"};
  });
  const auto s = around({{"MINDX_API_URL", server.url()}});
  const FinishedRun f("publish: {ipfs: {api_url: \"" + server.url() + "\"}, mindx: {}}\n");
  const auto planned = publish(open_run(f.path()), s, {}, true);
  publish(open_run(f.path()), s, {}, false);
  const auto seen = server.seen();
  EXPECT_EQ(planned.at(1).result["body"], seen.back().body);
  EXPECT_NE(seen.back().body.find("\"cid\":\"baf"), std::string::npos) << seen.back().body;
  for (const auto& o : publish(open_run(f.path()), s, {}, true)) EXPECT_EQ(o.state, StepOutcome::State::kKept);
  const FinishedRun hub("publish: {hf: {repo: org/model}, mindx: {}}\n");
  const auto both = publish(open_run(hub.path()), s, {}, true);
  EXPECT_NE(both.at(1).result["body"].get<std::string>().find("/org/model\""), std::string::npos);
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

TEST(Registers, APriceIsListedAsItIsWritten) {
  for (const auto& [price, listed] : {std::pair{"0.00003", "0.03}"}, {"0.0002", "0.2}"}, {"1.5", "1500.0}"}}) {
    const FinishedRun f(
        fmt::format("publish: {{agenticplace: {{}}, billing: {{x402: {{price_per_1k_tokens: {}}}}}}}\n", price));
    const std::string body = publish(open_run(f.path()), around(), {}, true)[0].result["body"];
    EXPECT_TRUE(body.ends_with(std::string("\"price_usdc_per_million_tokens\":") + listed)) << body;
  }
}

TEST(Registers, APageThatAPostIsSentToIsNoAnswerToIt) {
  net::TestServer server([](const net::ServerRequest& r) {
    if (r.target == "/v1/agents") return net::ServerResponse{301, {{"Location", "/v1/agents/"}}, ""};
    return net::ServerResponse{200, {}, R"({"id":"everybody's list"})"};
  });
  const FinishedRun f("publish: {mindx: {}}\n");
  const auto doing = [&] { publish(open_run(f.path()), around({{"MINDX_API_URL", server.url()}}), {}, false); };
  EXPECT_EQ(code_of(doing, "a redirect (301) to /v1/agents/, which is not followed"), Exit::kBadInput);
  EXPECT_EQ(server.seen().size(), 1u);
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

// What an agent's domain serves at the well-known address.
struct Domain {
  int status = 404;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  net::TestServer server{[this](const net::ServerRequest& r) {
    return r.method == "GET" && r.target == "/.well-known/agent-registration.json"
               ? net::ServerResponse{status, headers, body}
               : net::ServerResponse{404, {}, ""};
  }};
};

TEST(AgentDomain, IsProvenOnlyByWhatItServes) {
  AgentChain a;
  if (!a.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  Domain domain;
  const FinishedRun f(a.section());
  const auto s = around({{"MINDXTRAIN_EVM_KEY", kKey}, {"MINDXTRAIN_AGENT_URL", domain.server.url()}});
  const auto doing = [&] { return publish(open_run(f.path()), s, {}, false); };
  const auto planned = publish(open_run(f.path()), s, {}, true);
  EXPECT_EQ(planned.at(1).name, "erc8004_domain");
  EXPECT_EQ(planned[1].result["reads"], "GET " + domain.server.url() + "/.well-known/agent-registration.json");
  EXPECT_FALSE(fs::exists(f.path() + "/agent-registration.json"));
  // Not there yet: the file is, and where it goes is said. The agent is registered once.
  EXPECT_EQ(code_of(doing, "is not there (404): serve " + f.path() + "/agent-registration.json"), Exit::kMissing);
  const std::string file = read_file(f.path() + "/agent-registration.json");
  EXPECT_EQ(publish(open_run(f.path()), s, {}, true).at(1).result["file"], file);
  const std::string registry = "eip155:31337:" + evm::text_of(a.registry);
  const Json j = Json::parse(file);
  EXPECT_EQ(j["registrations"], Json::array({{{"agentId", 1}, {"agentRegistry", registry}}}));
  EXPECT_EQ(j["type"], "https://eips.ethereum.org/EIPS/eip-8004#registration-v1");
  EXPECT_EQ(j["services"][0]["endpoint"], domain.server.url() + "/");

  const auto serving = [&](int status, const std::string& body) {
    domain.status = status;
    domain.body = body;
    return doing;
  };
  const auto names = [](const std::string& id, const std::string& where) {
    return R"({"registrations":[{"agentId":)" + id + R"(,"agentRegistry":")" + where + "\"}]}";
  };
  EXPECT_EQ(code_of(serving(200, names("2", registry)), "names agent 2 of " + registry), Exit::kVerifyFailed);
  EXPECT_EQ(code_of(serving(200, names("1", "eip155:8453:" + evm::text_of(a.registry))), "eip155:8453"),
            Exit::kVerifyFailed);
  EXPECT_EQ(code_of(serving(200, R"({"registrations":{"agentId":1}})"), "names no agent"), Exit::kVerifyFailed);
  EXPECT_EQ(code_of(serving(200, "{}"), "names no agent"), Exit::kVerifyFailed);
  EXPECT_EQ(code_of(serving(200, "<html>"), "no registration file"), Exit::kMissing);
  EXPECT_EQ(code_of(serving(503, ""), "answers with 503"), Exit::kBadInput);
  EXPECT_EQ(code_of(serving(200, std::string(2 << 20, ' ')), "larger than"), Exit::kBadInput);
  domain.headers = {{"Location", "http://localhost:1/"}};
  EXPECT_EQ(code_of(serving(302, ""), "another host"), Exit::kMissing);
  domain.headers.clear();
  EXPECT_EQ(read_json_file(f.path() + "/publish.json")["steps"]["erc8004_domain"]["done"], false);

  std::string lower = registry;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string& body :
       {file, names("\"1\"", lower),
        R"({"registrations":["x",{"agentId":9,"agentRegistry":"eip155:1:0x00"},)" + names("1", registry).substr(18)}) {
    const auto done = serving(200, body)();
    EXPECT_EQ(done.at(0).state, StepOutcome::State::kKept);
    EXPECT_EQ(done.at(1).result["agent_id"], "1") << body;
    Json state = read_json_file(f.path() + "/publish.json");
    EXPECT_EQ(state["steps"]["erc8004_domain"]["done"], true);
    state["steps"].erase("erc8004_domain");
    f.put("publish.json", state.dump());
  }
  EXPECT_EQ(a.chain->rpc().nonce(evm::Anvil::account(1).address()), 1u);
}

TEST(AgentDomain, IsAnHttpsAddressWithoutAPath) {
  const auto root = [](const std::string& text) { return domain_root(around({{"MINDXTRAIN_AGENT_URL", text}})); };
  EXPECT_FALSE(root(""));
  EXPECT_EQ(root("agent.example")->text(), "https://agent.example/");
  EXPECT_EQ(root("https://Agent.example:8443/")->text(), "https://agent.example:8443/");
  EXPECT_EQ(root("http://localhost:80")->text(), "http://localhost/");
  for (const char* bad : {"http://agent.example", "http://127.agent.example", "https://agent.example/path",
                          "https://me:s3cret@agent.example", "ftp://agent.example", "agent example"})
    EXPECT_EQ(code_of([&] { root(bad); }, "MINDXTRAIN_AGENT_URL"), Exit::kBadInput) << bad;
}

std::string manifest_sha256(const FinishedRun& f) { return sha256_hex(read_file(f.path() + "/manifest.json")); }

TEST(Validation, IsAskedForOnceOfTheValidatorThatIsNamed) {
  AgentChain a;
  if (!a.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  const evm::Address registry = a.chain->deploy("test_validation"), validator = evm::Anvil::account(2).address();
  net::TestServer kubo([](const net::ServerRequest& r) {
    const std::string asked = r.target.substr(std::min(r.target.size(), r.target.find("arg=") + 4)),
                      pins = R"({"Keys":{")" + asked.substr(0, asked.find('&')) + R"(":{"Type":"recursive"}}})";
    return r.target.starts_with("/api/v0/pin/ls") ? net::ServerResponse{200, {}, pins}
                                                  : net::ServerResponse{500, {}, ""};
  });
  std::string section = a.section(fmt::format(", validation_registry: \"{}\"", evm::text_of(registry)));
  section.replace(section.find("publish: {"), 10, "publish: {ipfs: {api_url: \"" + kubo.url() + "\"}, ");
  const FinishedRun f(section);
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), around({{"MINDXTRAIN_EVM_KEY", kKey}}), {}, false); },
                    "MINDXTRAIN_ERC8004_VALIDATOR"),
            Exit::kMissing);
  const auto s = around({{"MINDXTRAIN_EVM_KEY", kKey}, {"MINDXTRAIN_ERC8004_VALIDATOR", evm::text_of(validator)}});
  const auto done = publish(open_run(f.path()), s, {}, false);
  ASSERT_EQ(done.size(), 3u);
  const OrderedJson& r = done[2].result;
  EXPECT_EQ(done[2].name, "erc8004_validation");
  EXPECT_EQ(r["validator"], evm::text_of(validator));
  EXPECT_EQ(r["agent_id"], "1");
  EXPECT_EQ(r["request_hash"], evm::hex(evm::keccak256(read_file(f.path() + "/manifest.json"))));
  const Json mined = a.chain->rpc().call("eth_getTransactionByHash", Json::array({r["tx"]}));
  const std::string input = mined["input"];
  EXPECT_TRUE(input.starts_with("0xaaf400c4")) << input.substr(0, 10);
  EXPECT_NE(
      evm::from_hex(input)->find("ipfs://" + done[0].result["cid"].get<std::string>() + "/provenance/manifest.json"),
      std::string::npos);
  const auto planned = [&] { return publish(open_run(f.path()), s, {"erc8004_validation"}, true).at(0); };
  EXPECT_EQ(planned().state, StepOutcome::State::kKept);
  Json state = read_json_file(f.path() + "/publish.json");
  state["steps"].erase("erc8004_validation");
  f.put("publish.json", state.dump());
  EXPECT_EQ(planned().result["data"], input);
  fs::remove(f.path() + "/publish.json");
  const auto again = publish(open_run(f.path()), s, {}, false);
  EXPECT_FALSE(again[2].result.contains("tx"));
  fs::remove(f.path() + "/publish.json");
  const auto other = around(
      {{"MINDXTRAIN_EVM_KEY", kKey}, {"MINDXTRAIN_ERC8004_VALIDATOR", evm::text_of(evm::Anvil::account(1).address())}});
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), other, {}, false); }, "cannot be asked for again"),
            Exit::kVerifyFailed);
}

TEST(Ens, NamesAreHashedAsEip137Has) {
  EXPECT_EQ(evm::hex(namehash("eth")), "0x93cdeb708b7545dc668eb9280176169d1c33cfd8ed6f04690a0bcc88a93fc4ae");
  EXPECT_EQ(evm::hex(namehash("foo.eth")), "0xde9b09fd7c5f901e23a3f19fecc54828e9c848539801e86591bd9801b019f84f");
  EXPECT_EQ(evm::hex(namehash("bankon.eth")), "0x79c178642317fc2d61d186f3b412440f06590d8314f126362d6a88929a6cbe1a");
}

TEST(Ens, ASubnameIsSetOnceByWhoOwnsItsParent) {
  AgentChain a;
  if (!a.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  const evm::Address us = evm::Anvil::account(1).address(), resolver = evm::Anvil::account(0).address();
  const evm::Address wrapper = a.chain->deploy(
      "test_name_wrapper", evm::abi_encode({evm::AbiValue::word(namehash("bankon.eth")), evm::AbiValue::address(us)}));
  const auto section = [&](const std::string& more) {
    return fmt::format(
        "publish: {{bankon: {{subname: tiny}}, evm: {{rpc_url: \"{}\", chain_id: 31337, confirmations: 1, {}}}}}\n",
        a.chain->url(), more);
  };
  const std::string both =
      fmt::format("name_wrapper: \"{}\", resolver: \"{}\"", evm::text_of(wrapper), evm::text_of(resolver));
  const FinishedRun f(section(both));
  const auto s = around({{"MINDXTRAIN_EVM_KEY", kKey}});
  const auto planned = publish(open_run(f.path()), s, {}, true)[0].result;
  EXPECT_TRUE(planned["data"].get<std::string>().starts_with("0x24c1af44"));
  const auto done = publish(open_run(f.path()), s, {}, false);
  ASSERT_EQ(done.size(), 1u) << "the service is not asked where the chain is";
  EXPECT_EQ(done[0].result["name"], "tiny.bankon.eth");
  const Json mined = a.chain->rpc().call("eth_getTransactionByHash", Json::array({done[0].result["tx"]}));
  EXPECT_EQ(mined["input"], planned["data"].get<std::string>());
  const auto at = [&](const char* what) {
    return evm::AbiReader(a.chain->rpc().eth_call(
                              wrapper, evm::abi_call(what, {evm::AbiValue::word(namehash("tiny.bankon.eth"))})),
                          what)
        .address(0);
  };
  EXPECT_EQ(at("ownerOf(uint256)"), us);
  EXPECT_EQ(at("resolverOf(uint256)"), resolver);
  fs::remove(f.path() + "/publish.json");
  EXPECT_FALSE(publish(open_run(f.path()), s, {}, false)[0].result.contains("tx"));
  // Another key: the name is not its.
  fs::remove(f.path() + "/publish.json");
  const auto stranger = around({{"MINDXTRAIN_EVM_KEY", evm::hex(evm::Anvil::account(2).secret())}});
  EXPECT_EQ(code_of([&] { publish(open_run(f.path()), stranger, {}, false); }, "choose another"), Exit::kBadInput);
  const FinishedRun alone(section("resolver: \"" + evm::text_of(resolver) + "\""));
  EXPECT_EQ(code_of([&] { publish(open_run(alone.path()), s, {}, true); }, "name_wrapper"), Exit::kBadInput);
}

TEST(Inft, IsReadInBothGenerationsAndNeverMinted) {
  AgentChain a;
  if (!a.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  for (const char* contract : {"test_inft", "test_inft_of_hashes"}) {
    const FinishedRun plain("publish: {mindx: {}}\n");
    const auto deploy = [&](const std::string& digest) {
      return a.chain->deploy(contract, evm::abi_encode({evm::AbiValue::number(5),
                                                        evm::AbiValue::word(*evm::digest_from_hex("0x" + digest))}));
    };
    const auto recipe = [&](const evm::Address& at, const std::string& token) {
      const FinishedRun other(fmt::format("publish: {{evm: {{rpc_url: \"{}\", chain_id: 31337, inft: \"{}\"{}}}}}\n",
                                          a.chain->url(), evm::text_of(at), token));
      return config::load_recipe(other.path() + "/recipe.yaml").publish;
    };
    publish::Run run = open_run(plain.path());
    const auto doing = [&] { return publish(run, around(), {}, false); };
    run.recipe.publish = recipe(deploy(manifest_sha256(plain)), ", inft_token: 5");
    EXPECT_EQ(doing()[0].result["token"], 5) << contract;
    run.recipe.publish = recipe(deploy(std::string(64, '1')), ", inft_token: 5");
    EXPECT_EQ(code_of(doing, "holds other data"), Exit::kVerifyFailed);
    run.recipe.publish = recipe(deploy(std::string(64, '1')), ", inft_token: 6");
    EXPECT_EQ(code_of(doing, "for token 6"), Exit::kBadInput);
    run.recipe.publish = recipe(deploy(std::string(64, '1')), "");
    EXPECT_EQ(code_of(doing, "belong together"), Exit::kBadInput);
  }
}

TEST(Asset, IsReadAndNeverMade) {
  std::string hash;
  std::vector<std::string> tokens;
  net::TestServer algod([&](const net::ServerRequest& r) {
    tokens.push_back(r.headers.contains("x-algo-api-token") ? r.headers.at("x-algo-api-token") : "");
    if (r.method != "GET" || r.target != "/v2/assets/77")
      return net::ServerResponse{404, {}, R"({"message":"asset does not exist"})"};
    return net::ServerResponse{
        200,
        {},
        R"({"index":77,"params":{"name":"tiny","unit-name":"TINY","creator":"AAAA","metadata-hash":")" + hash + "\"}}"};
  });
  const auto section = [&](const std::string& more) {
    return fmt::format("publish: {{algorand: {{algod_url: \"{}\"{}}}}}\n", algod.url(), more);
  };
  const FinishedRun f(section(", asa_id: 77"));
  const auto doing = [&] { return publish(open_run(f.path()), around({{"ALGOD_TOKEN", "aaa"}}), {}, false); };
  EXPECT_EQ(code_of(doing, "not set"), Exit::kVerifyFailed);
  hash = to_base64(std::string(32, 'x'));
  EXPECT_EQ(code_of(doing, "metadata hash"), Exit::kVerifyFailed);
  hash = to_base64(*evm::from_hex("0x" + manifest_sha256(f)));
  EXPECT_EQ(doing()[0].result["name"], "tiny");
  EXPECT_EQ(tokens.back(), "aaa");
  const FinishedRun none(section("")), absent(section(", asa_id: 78"));
  EXPECT_EQ(code_of([&] { publish(open_run(none.path()), around(), {}, false); }, "never made"), Exit::kMissing);
  EXPECT_EQ(code_of([&] { publish(open_run(absent.path()), around(), {}, false); }, "does not exist"), Exit::kBadInput);
}

}  // namespace
}  // namespace mxt::publish
