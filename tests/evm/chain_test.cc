// One transaction's life on a real node (anvil), and a node that lies.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "evm/abi.h"
#include "evm/anvil.h"
#include "evm/send.h"
#include "net/test_server.h"

#define NEEDS_ANVIL(...)                          \
  const auto chain = Anvil::start({__VA_ARGS__}); \
  if (!chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)"

namespace mxt::evm {
namespace {

SendSettings quick(Rpc& rpc, uint64_t confirmations = 1) {
  SendSettings s;
  s.chain_id = rpc.chain_id();
  s.confirmations = confirmations;
  s.poll_seconds = 0.05;
  s.patience_seconds = 10;
  s.replace_seconds = 0.2;
  return s;
}

std::string anchor_call(int id) {
  return abi_call("anchor(bytes32,bytes32,string)",
                  {AbiValue::number(id), AbiValue::number(5), AbiValue::bytes("bafy")});
}

U256 digest_of_entry(Rpc& rpc, const Address& registry, const Address& publisher, int id) {
  const std::string answer = rpc.eth_call(
      registry, abi_call("entryOf(address,bytes32)", {AbiValue::address(publisher), AbiValue::number(id)}));
  return AbiReader(answer, "registry").number(0);
}

TEST(Send, WaitsForTheDepthThatWasAskedFor) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  std::jthread miner([&] {
    Rpc own(chain->url(), {});
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      own.call("anvil_mine", Json::array({"0x1"}));
    }
  });
  testing::internal::CaptureStderr();
  const Sent s =
      send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc(), 4), Json(), [](const Json&) {});
  miner.join();
  const std::string said = testing::internal::GetCapturedStderr(), line = "waiting for transaction " + hex(s.hash);
  EXPECT_NE(said.find(line + " to be 4 deep, at most 10 s; Ctrl-C keeps what was sent"), std::string::npos) << said;
  EXPECT_EQ(said.find(line), said.rfind(line)) << "once";
  EXPECT_TRUE(s.receipt.succeeded);
  EXPECT_GE(chain->rpc().block_number(), s.receipt.block + 3);
  EXPECT_EQ(digest_of_entry(chain->rpc(), registry, key.address(), 1), 5);
  ASSERT_EQ(s.receipt.logs.size(), 1u);
  EXPECT_EQ(s.receipt.logs[0].topics[0], topic("Anchored(address,bytes32,bytes32,string)"));
}

TEST(Rpc, ANodeThatAnswersForFewBlocksAtOnceIsAskedInRanges) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  const auto anchor = [&](int id) {
    return send_transaction(chain->rpc(), key, registry, anchor_call(id), quick(chain->rpc()), Json(),
                            [](const Json&) {})
        .receipt.block;
  };
  const auto pass_days = [&](int blocks) { chain->rpc().call("anvil_mine", {quantity(blocks), quantity(86'400)}); };
  std::vector<uint64_t> blocks = {anchor(1)};
  pass_days(40);
  blocks.push_back(anchor(2));
  pass_days(60);
  blocks.push_back(anchor(3));
  const auto time_of = [&](uint64_t block) {
    const Json b = chain->rpc().call("eth_getBlockByNumber", {quantity(block), false});
    return static_cast<int64_t>(*parse_quantity(b["timestamp"].get<std::string>()));
  };
  int64_t most = 0;  // blocks that the node answers for
  size_t searched = 0;
  net::HttpClient http;
  net::TestServer node([&](const net::ServerRequest& r) -> net::ServerResponse {
    const Json q = Json::parse(r.body);
    if (q["method"] == "eth_getLogs") {
      const Json &range = q["params"][0], &from = range["fromBlock"], &to = range["toBlock"];
      const auto number = [](const Json& j) { return static_cast<int64_t>(*parse_quantity(j.get<std::string>())); };
      if (from == "earliest") return {413, {}, "too much"};
      if (number(to) - number(from) >= most)
        return {400, {}, Json{{"id", q["id"]}, {"error", {{"code", -32005}, {"message", "block range"}}}}.dump()};
      ++searched;
    }
    return {200,
            {},
            http.send({.method = "POST",
                       .url = chain->url(),
                       .headers = {{"Content-Type", "application/json"}},
                       .body = r.body})
                .body};
  });
  Rpc rpc(node.url(), {});
  const std::vector<std::optional<Digest>> topics = {topic("Anchored(address,bytes32,bytes32,string)")};
  const auto found = [&](int64_t since) {
    std::vector<uint64_t> out;
    for (const Log& l : rpc.logs(registry, topics, since)) out.push_back(l.block);
    return out;
  };
  for (const int64_t width : {1000, 20, 7, 1}) {
    most = width;
    EXPECT_EQ(found(0), blocks) << width;
    EXPECT_EQ(found(time_of(blocks[1])), (std::vector{blocks[1], blocks[2]})) << width;
    EXPECT_EQ(found(time_of(blocks[1]) + 1), std::vector{blocks[2]}) << width;
    searched = 0;
    EXPECT_EQ(found(time_of(blocks[2])), std::vector{blocks[2]}) << width;
    EXPECT_LE(searched, 2u) << "what is older is not asked for";  // but for a block of the same second
  }
  EXPECT_TRUE(found(time_of(blocks[2]) + 1).empty());
  most = 0;
  EXPECT_THROW(found(0), NodeError);
}

TEST(Send, AProgramKilledAtAnyPointSendsOnce) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  Json kept;
  // Killed between keeping and sending.
  struct Killed {};
  EXPECT_THROW(send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), kept,
                                [&](const Json& j) {
                                  kept = j;
                                  throw Killed();
                                }),
               Killed);
  EXPECT_EQ(chain->rpc().nonce(key.address()), 0u);
  const Sent first = send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), kept,
                                      [&](const Json& j) { kept = j; });
  EXPECT_EQ(chain->rpc().nonce(key.address()), 1u);
  // Killed after it was mined.
  const Sent again = send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), kept,
                                      [&](const Json&) { FAIL() << "a second attempt was made"; });
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(chain->rpc().nonce(key.address()), 1u);
}

TEST(Send, AReorgIsSurvived) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  Json kept;
  bool reorganized = false;
  std::jthread chaos([&] {
    Rpc own(chain->url(), {});
    while (own.nonce(key.address()) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // The block that held it is replaced by an empty one. Whoever sends may have sent again by the time that this
    // looks: what stands at that height tells.
    const uint64_t height = own.block_number();
    const auto held = own.block_hash(height);
    own.call("anvil_reorg", {1, Json::array()});
    reorganized = own.block_hash(height) != held;
    for (int i = 0; i < 40 && own.nonce(key.address()) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      own.call("anvil_mine", Json::array({"0x1"}));
    }
    own.call("anvil_mine", Json::array({"0x4"}));
  });
  const Sent s = send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc(), 3), kept,
                                  [&](const Json& j) { kept = j; });
  chaos.join();
  EXPECT_TRUE(reorganized);
  EXPECT_EQ(chain->rpc().block_hash(s.receipt.block), s.receipt.block_hash);
  EXPECT_EQ(digest_of_entry(chain->rpc(), registry, key.address(), 1), 5);
  EXPECT_EQ(chain->rpc().nonce(key.address()), 1u);
}

TEST(Send, AnAttemptThatTheBaseFeeOutgrowsIsReplaced) {
  NEEDS_ANVIL("--no-mining");
  Rpc& rpc = chain->rpc();
  const Key key = Anvil::account(1);
  const Address to = Anvil::account(2).address();
  Json kept;
  std::atomic<bool> begun = false;
  std::jthread chaos([&] {
    Rpc own(chain->url(), {});
    while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    own.call("anvil_setNextBlockBaseFeePerGas", Json::array({"0x3b9aca0000"}));  // 256 gwei
    own.call("evm_mine", Json::array());
    for (int i = 0; i < 60 && own.nonce(key.address()) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      own.call("evm_mine", Json::array());
    }
  });
  const Sent s = send_transaction(rpc, key, to, "", quick(rpc), Json(), [&](const Json& j) {
    kept = j;
    begun = true;
  });
  chaos.join();
  EXPECT_TRUE(s.receipt.succeeded);
  EXPECT_EQ(rpc.nonce(key.address()), 1u);
  EXPECT_GE(kept["attempts"].size(), 2u);
}

TEST(Send, APriceAboveTheLimitIsNotPaid) {
  NEEDS_ANVIL();
  chain->rpc().call("anvil_setNextBlockBaseFeePerGas", Json::array({"0x3b9aca0000"}));
  chain->mine();
  SendSettings s = quick(chain->rpc());
  s.most_fee = U256(10'000'000'000);
  const Key key = Anvil::account(1);
  try {
    send_transaction(chain->rpc(), key, Anvil::account(2).address(), "", s, Json(), [](const Json&) { FAIL(); });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
    EXPECT_NE(std::string(e.what()).find("above the limit of 10"), std::string::npos) << e.what();
  }
}

TEST(Send, ANonceThatWentElsewhereIsNotMistakenForOurs) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  Json kept;
  struct Killed {};
  EXPECT_THROW(send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), Json(),
                                [&](const Json& j) {
                                  kept = j;
                                  throw Killed();
                                }),
               Killed);
  // Another program with the same key.
  send_transaction(chain->rpc(), key, registry, anchor_call(2), quick(chain->rpc()), Json(), [](const Json&) {});
  send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), kept, [](const Json&) {});
  EXPECT_EQ(digest_of_entry(chain->rpc(), registry, key.address(), 1), 5);
  EXPECT_EQ(chain->rpc().nonce(key.address()), 2u);
}

// A node counts an account's nonce before it shows the receipt, or another one behind the same address lags.
TEST(Send, AReceiptThatIsShownLateIsWaitedFor) {
  NEEDS_ANVIL();
  const Key key = Anvil::account(1);
  std::map<std::string, std::chrono::steady_clock::time_point> first;
  net::TestServer lagging([&](const net::ServerRequest& r) {
    const Json call = Json::parse(r.body);
    if (call["method"] == "eth_getTransactionReceipt") {
      const auto now = std::chrono::steady_clock::now();
      if (now - first.try_emplace(call["params"].dump(), now).first->second < std::chrono::milliseconds(500))
        return net::ServerResponse{200, {}, Json{{"jsonrpc", "2.0"}, {"id", call["id"]}, {"result", nullptr}}.dump()};
    }
    net::HttpRequest q;
    q.method = "POST";
    q.url = chain->url();
    q.headers = {{"Content-Type", "application/json"}};
    q.body = r.body;
    return net::ServerResponse{200, {}, net::HttpClient().send(q).body};
  });
  Rpc rpc(lagging.url(), {});
  SendSettings s = quick(rpc);
  s.replace_seconds = 2;
  send_transaction(rpc, key, Anvil::account(2).address(), "", s, Json(), [](const Json&) {});
  EXPECT_EQ(chain->rpc().nonce(key.address()), 1u);
}

TEST(Send, WhatAnotherAccountHadTriedIsNotSentAgain) {
  NEEDS_ANVIL();
  const Key poor = new_key(), rich = Anvil::account(1);
  const Address to = Anvil::account(2).address();
  Json kept;
  EXPECT_THROW(
      send_transaction(chain->rpc(), poor, to, "", quick(chain->rpc()), Json(), [&](const Json& j) { kept = j; }),
      NodeError);
  ASSERT_EQ(kept["attempts"].size(), 1u);
  send_transaction(chain->rpc(), rich, to, "", quick(chain->rpc()), kept, [&](const Json& j) { kept = j; });
  EXPECT_EQ(chain->rpc().nonce(rich.address()), 1u);
  EXPECT_EQ(kept["from"], text_of(rich.address()));
}

TEST(Send, ARevertIsSaidBeforeAnythingIsSent) {
  NEEDS_ANVIL();
  const Address registry = chain->deploy("registry");
  const Key key = Anvil::account(1);
  send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), Json(), [](const Json&) {});
  EXPECT_THROW(send_transaction(chain->rpc(), key, registry, anchor_call(1), quick(chain->rpc()), Json(),
                                [](const Json&) { FAIL(); }),
               NodeError);
}

// A node that answers what it is told to, whatever is asked.
Exit code_of(const std::string& body, int status = 200, size_t cut = std::string::npos) {
  net::TestServer server([&](const net::ServerRequest&) {
    net::ServerResponse r{status, {{"Content-Type", "application/json"}}, body};
    r.cut_after = cut;
    return r;
  });
  net::HttpOptions o;
  o.retry_base_seconds = 0.001;
  Rpc rpc(server.url("/secret-path-key"), o);
  try {
    rpc.receipt(Digest{});
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("secret-path-key"), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.code();
  }
  return Exit::kOk;
}

TEST(Node, AFeeThatNobodyPaysIsNoAnswer) {
  std::string base, tip;
  net::TestServer server([&](const net::ServerRequest& r) {
    const Json q = Json::parse(r.body);
    const bool block = q["method"] == "eth_getBlockByNumber";
    return net::ServerResponse{
        200, {}, Json{{"id", q["id"]}, {"result", block ? Json{{"baseFeePerGas", base}} : Json(tip)}}.dump()};
  });
  Rpc rpc(server.url(), {});
  const std::string most = "0x" + std::string(64, 'f');
  base = "0x7", tip = "0x2";
  EXPECT_EQ(rpc.fees().base + rpc.fees().tip, 9);
  for (auto& [b, t] : {std::pair{most, std::string("0x2")}, {"0x8000000000000000", "0x2"}, {"0x7", most}}) {
    base = b, tip = t;
    EXPECT_THROW(rpc.fees(), Error) << "twice the base fee, and the tip, would wrap around";
  }
}

TEST(Node, NonsenseEndsInOneLine) {
  const std::string zero = hex(Digest{});
  const std::string good = R"({"jsonrpc":"2.0","id":1,"result":{"transactionHash":")" + zero +
                           R"(","status":"0x1","blockNumber":"0x5","blockHash":")" + zero + R"(","logs":[]}})";
  EXPECT_EQ(code_of(good), Exit::kOk);
  for (const std::string& wrong :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"jsonrpc":"2.0","id":1})"),
        std::string(R"({"jsonrpc":"2.0","id":2,"result":null})"), std::string(R"({"jsonrpc":"2.0","id":1,"result":5})"),
        std::string(R"({"jsonrpc":"2.0","id":1,"result":{}})"),
        std::string(R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"line\none"}})"),
        std::string(9 << 20, ' '), std::string(200'000, '[')})
    EXPECT_EQ(code_of(wrong), Exit::kBadInput) << wrong.substr(0, 80);
  EXPECT_EQ(code_of(good, 200, 20), Exit::kBadInput);
  EXPECT_EQ(code_of("down", 503), Exit::kBadInput);
  try {
    net::HttpOptions o;
    o.retry_base_seconds = 0.001;
    Rpc("http://127.0.0.1:1", o).chain_id();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kBadInput);
  }
  EXPECT_THROW(Rpc("ftp://x", {}), Error);
}

}  // namespace
}  // namespace mxt::evm
