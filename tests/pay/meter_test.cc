// Payments on a real node (anvil): granted once, never lost.
#include "net/test_server.h"
#include "pay/shop.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/within.h"

#define NEEDS_CHAIN(shop) \
  if (!shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)"

namespace mxt::pay {
namespace {

void deliver(const Shop::Outcome& o, int64_t tokens = 700) {
  std::promise<net::Headers> done;
  o.grant->finish(tokens, true, [&](net::Headers h) { done.set_value(std::move(h)); });
  done.get_future().get();
  if (const Keeper k = o.grant->keeper(); k.sent) k.sent();
}

// What `a` has paid for grants no request but that.
void expect_no_other_request(Shop& shop, const Ask& a) {
  Ask other = a;
  other.request = "another";
  EXPECT_EQ(shop.admit(other).error(), "invalid_exact_evm_nonce_already_used");
}

TEST(Exact, WhoHasNotPaidIsToldHow) {
  Shop shop;
  NEEDS_CHAIN(shop);
  const auto o = shop.admit(shop.ask());
  ASSERT_TRUE(o.refusal);
  EXPECT_EQ(o.refusal->status, 402);
  const Json v2 = decoded(*net::find_header(o.refusal->headers, "PAYMENT-REQUIRED")), v1 = Json::parse(o.refusal->body);
  EXPECT_EQ(v2["accepts"][0]["amount"], "2000");
  EXPECT_EQ(v2["accepts"][0]["network"], "eip155:84532");
  EXPECT_EQ(v2["accepts"][0]["extra"], (Json{{"name", "USDC"}, {"version", "2"}}));
  EXPECT_EQ(v1["x402Version"], 1);
  EXPECT_EQ(v1["accepts"][0]["maxAmountRequired"], "2000");
}

TEST(Exact, APaymentIsSettledGrantedOnceAndPaysForOneRequest) {
  Shop shop;
  NEEDS_CHAIN(shop);
  for (const int version : {1, 2}) {
    const auto before = shop.balance(merchant());
    EvmPayer payer(shop.payer(), 1'000'000);
    const Ask a = shop.paid(payer, "r", version);
    auto o = shop.admit(a);
    ASSERT_TRUE(o.grant) << o.error();
    const Json said = response_of(o.grant->headers(), version == 2 ? "PAYMENT-RESPONSE" : "X-PAYMENT-RESPONSE");
    EXPECT_EQ(said["success"], true);
    EXPECT_EQ(said["payer"], evm::text_of(payer.address()));
    EXPECT_EQ(shop.balance(merchant()), before + 2000);
    EXPECT_TRUE(shop.chain->rpc().receipt(*evm::digest_from_hex(said["transaction"].get<std::string>()))->succeeded);
    EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used") << "while it is answered";
    deliver(o);
    o.grant.reset();
    EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used");
    expect_no_other_request(shop, a);
    EXPECT_EQ(shop.balance(merchant()), before + 2000);
  }
}

TEST(Exact, AnAnswerThatWasNotDeliveredIsOwedToTheSameRequestEvenAfterAKill) {
  Shop shop;
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  const Ask a = shop.paid(payer);
  {
    const auto o = shop.admit(a);
    ASSERT_TRUE(o.grant) << o.error();
  }  // never delivered
  shop.close();
  shop.open();
  expect_no_other_request(shop, a);
  auto o = shop.admit(a);
  ASSERT_TRUE(o.grant) << o.error();
  deliver(o);
  o.grant.reset();
  EXPECT_EQ(shop.balance(merchant()), 2000);
  EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used");
}

// Nobody can tell whether the last byte of an answer left a server that was killed with it: what was answered is
// answered again, byte for byte, and nothing new is made for the payment.
TEST(Exact, AServerKilledAroundAnAnswersLastByteGivesThatAnswerAndNoOther) {
  Shop shop;
  NEEDS_CHAIN(shop);
  for (const int version : {1, 2}) {
    EvmPayer payer(shop.payer(), 1'000'000);
    const Ask a = shop.paid(payer, "r", version);
    const auto before = shop.balance(merchant());
    {
      const auto o = shop.admit(a);
      ASSERT_TRUE(o.grant) << o.error();
      o.grant->finish(700, true, [](const net::Headers&) {});
      o.grant->keeper().made({200, {{"X", "y"}}, "the answer"});
    }  // killed before anybody knows that it went out
    EXPECT_EQ(shop.store->in(State::kAnswered).size(), 1u);
    shop.close();
    shop.open();
    expect_no_other_request(shop, a);
    auto o = shop.admit(a);
    ASSERT_TRUE(o.refusal && !o.grant);
    EXPECT_EQ(o.refusal->status, 200);
    EXPECT_EQ(o.refusal->body, "the answer");
    EXPECT_EQ(o.refusal->headers, (net::Headers{{"X", "y"}}));
    EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used") << "while it is answered";
    o.refusal->sent();
    o.refusal.reset();
    EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used") << "once it is";
    EXPECT_EQ(shop.balance(merchant()), before + 2000);
  }
}

TEST(Exact, AServerThatEndsBetweenSendingAndMiningGoesOn) {
  Shop shop("test_dollar", {Scheme::kExact}, {});
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  const Ask a = shop.paid(payer);
  shop.chain->rpc().call("evm_setAutomine", Json::array({false}));
  auto pending = shop.begin(a);
  ASSERT_TRUE(within(60, [&] { return !shop.store->in(State::kSent).empty(); }));
  shop.close();  // the callback never comes
  shop.open();
  EXPECT_EQ(shop.admit(a).error(), "settlement_pending");
  shop.chain->rpc().call("evm_setAutomine", Json::array({true}));
  shop.chain->mine();
  Shop::Outcome o;
  within(60, [&] {
    o = shop.admit(a);
    return o.grant != nullptr;
  });
  ASSERT_TRUE(o.grant) << o.error();
  EXPECT_EQ(shop.balance(merchant()), 2000);
}

// A server as a process of its own that answers one request; it tells what it has done, a letter each.
pid_t serves_once(Shop& shop, const Ask& a, int told) {
  const pid_t child = fork();
  if (child != 0) return child;
  evm::Rpc rpc(shop.chain->url(), {});  // connections are not shared with who started it
  shop.open(rpc);
  const auto tell = [&](char what) {
    if (write(told, &what, 1) != 1) _exit(9);
  };
  tell('b');
  const auto o = shop.admit(a);
  if (o.grant) {
    tell('g');
    deliver(o);
    tell('d');
  }
  pause();
  _exit(0);
}

// Whenever the kill comes: who has paid is answered once, the next server knows it, and the money went once.
TEST(Exact, TwentyKillsGrantNoPaymentTwiceAndLoseNone) {
  Shop shop;
  NEEDS_CHAIN(shop);
  int granted = 0;
  for (int i = 0; i < 20; ++i) {
    EvmPayer payer(shop.payer(), 1'000'000);
    const Ask a = shop.paid(payer);
    const auto had = shop.balance(merchant());
    shop.close();
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const bool held = i % 4 == 0;  // nothing is mined, so that the grant cannot come before the kill
    if (held) shop.chain->rpc().call("evm_setAutomine", Json::array({false}));
    const pid_t server = serves_once(shop, a, told[1]);
    ASSERT_GT(server, 0);
    close(told[1]);
    char begun = 0;
    ASSERT_EQ(read(told[0], &begun, 1), 1);
    // Every fourth is killed when it has delivered, the others ever later from the beginning on.
    std::string done;
    if (i % 4 == 3)
      for (char c = 0; c != 'd' && read(told[0], &c, 1) == 1;) done += c;
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(15 * i));
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    for (char c = 0; read(told[0], &c, 1) == 1;) done += c;
    close(told[0]);
    granted += !done.empty();

    if (held) {
      EXPECT_EQ(done, "") << i;
      shop.chain->rpc().call("evm_setAutomine", Json::array({true}));
      shop.chain->mine();
    }
    shop.open();
    Ask other = a;
    other.request = "another";
    Shop::Outcome o;
    EXPECT_TRUE(within(60, [&] {
      o = shop.admit(a);
      return o.grant != nullptr || o.error() != "settlement_pending";
    }));
    if (done.empty()) {
      EXPECT_TRUE(o.grant) << i << ": paid and not answered: " << o.error();
    } else if (done == "gd") {
      EXPECT_EQ(o.error(), "invalid_exact_evm_nonce_already_used") << i;
    }
    if (o.grant) deliver(o);
    o.grant.reset();
    EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_nonce_already_used") << i;
    EXPECT_EQ(shop.admit(other).error(), "invalid_exact_evm_nonce_already_used") << i;
    EXPECT_EQ(shop.balance(merchant()), had + 2000) << i << " " << done;
  }
  EXPECT_GE(granted, 5);
}

TEST(Exact, FiftyAtOnceWithOnePaymentAreOneAnswer) {
  Shop shop;
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  const Ask a = shop.paid(payer);
  std::vector<std::future<Shop::Outcome>> all;
  for (int i = 0; i < 50; ++i) all.push_back(std::async(std::launch::async, [&] { return shop.admit(a); }));
  std::vector<Shop::Outcome> outcomes;
  for (auto& f : all) outcomes.push_back(f.get());
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.grant != nullptr; }), 1);
  EXPECT_EQ(shop.balance(merchant()), 2000);
}

TEST(Exact, FiftyDifferentPaymentsAtOnceAreAllGranted) {
  Shop shop;
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  std::vector<Ask> asks;
  for (int i = 0; i < 50; ++i) asks.push_back(shop.paid(payer, "r" + std::to_string(i)));
  std::vector<std::future<Shop::Outcome>> all;
  for (const Ask& a : asks) all.push_back(shop.begin(a));
  int granted = 0;
  for (auto& f : all) granted += f.get().grant != nullptr;
  EXPECT_EQ(granted, 50);
  EXPECT_EQ(shop.balance(merchant()), 100'000);
}

TEST(Exact, WhoCannotPayIsRefusedAndNothingIsSent) {
  Shop shop;
  NEEDS_CHAIN(shop);
  const evm::Key poor = shop.payer(1999);
  const Ask a = shop.paid(EvmPayer(poor, 1'000'000));
  const uint64_t nonce = shop.chain->rpc().nonce(Shop::settling_key().address());
  EXPECT_EQ(shop.admit(a).error(), "invalid_exact_evm_insufficient_balance");
  EXPECT_EQ(shop.chain->rpc().nonce(Shop::settling_key().address()), nonce);
  shop.send(evm::Anvil::account(0), shop.usdc,
            evm::abi_call("mint(address,uint256)", {evm::AbiValue::address(poor.address()), evm::AbiValue::number(1)}));
  EXPECT_TRUE(shop.admit(a).grant) << "nothing was taken: the same payment is good once there is enough";
}

TEST(Exact, ASettlementWithoutItsTransferIsNone) {
  Shop shop("careless_dollar");
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  const Ask a = shop.paid(payer);
  // Somebody settles it elsewhere first; this token then says yes to a second settlement and moves nothing.
  shop.send(evm::Anvil::account(1), shop.usdc, settlement_call(parse_payment(a.payment_v2, 2), 2000));
  EXPECT_EQ(shop.balance(merchant()), 2000);
  const auto o = shop.admit(a);
  EXPECT_EQ(o.error(), "invalid_exact_evm_transfer_event_mismatch");
  EXPECT_EQ(response_of(o.refusal->headers)["success"], false);
}

TEST(Exact, TheSettlingAccountUsedElsewhereLosesNoPayment) {
  Shop shop;
  NEEDS_CHAIN(shop);
  EvmPayer payer(shop.payer(), 1'000'000);
  for (int i = 0; i < 4; ++i) {
    const Ask a = shop.paid(payer, "r" + std::to_string(i));
    shop.send(Shop::settling_key(), merchant(), "");
    EXPECT_TRUE(shop.admit(a).grant);
  }
  EXPECT_EQ(shop.balance(merchant()), 8000);
}

// A node counts an account's nonce before it shows the receipt, or another one behind the same address lags.
TEST(Exact, AReceiptThatIsShownLateLosesNoPayment) {
  Shop shop;
  NEEDS_CHAIN(shop);
  std::mutex mutex;
  std::map<std::string, std::chrono::steady_clock::time_point> first;
  net::TestServer lagging([&](const net::ServerRequest& r) {
    const Json call = Json::parse(r.body);
    if (call["method"] == "eth_getTransactionReceipt") {
      const std::lock_guard lock(mutex);
      const auto now = std::chrono::steady_clock::now();
      const auto since = now - first.try_emplace(call["params"].dump(), now).first->second;
      if (since < std::chrono::milliseconds(800))
        return net::ServerResponse{200, {}, Json{{"jsonrpc", "2.0"}, {"id", call["id"]}, {"result", nullptr}}.dump()};
    }
    net::HttpRequest q;
    q.method = "POST";
    q.url = shop.chain->url();
    q.headers = {{"Content-Type", "application/json"}};
    q.body = r.body;
    return net::ServerResponse{200, {}, net::HttpClient().send(q).body};
  });
  evm::Rpc rpc(lagging.url(), {});
  shop.meter.reset();
  SettleSettings s;
  s.poll_seconds = 0.05;
  s.replace_seconds = 0.2;
  shop.meter = std::make_unique<Meter>(&rpc, shop.terms, Price(0.002, 6), *shop.store, [&](const Terms& t) {
    return std::make_unique<Settler>(rpc, Shop::settling_key(), t, *shop.store, s);
  });
  EvmPayer payer(shop.payer(), 1'000'000);
  for (int i = 1; i <= 3; ++i) {
    const auto o = shop.admit(shop.paid(payer));
    EXPECT_TRUE(o.grant) << o.error();
    EXPECT_EQ(shop.balance(merchant()), 2000 * i);
  }
  shop.close();
}

TEST(Upto, ChargesWhatWasUsed) {
  Shop shop("test_dollar", {Scheme::kUpto, Scheme::kExact});
  NEEDS_CHAIN(shop);
  const evm::Key key = shop.payer();
  shop.chain->rpc().call("anvil_setBalance", {evm::text_of(key.address()), "0xde0b6b3a7640000"});
  EvmPayer payer(key, 1'000'000);
  const Ask a = shop.paid(payer);
  const auto refused = shop.admit(a);
  EXPECT_EQ(refused.error(), "permit2_allowance_required");
  EXPECT_EQ(refused.refusal->status, 412);
  shop.send(key, shop.usdc,
            evm::abi_call("approve(address,uint256)", {evm::AbiValue::address(*evm::parse_address(evm::kPermit2)),
                                                       evm::AbiValue::number(1'000'000)}));
  auto o = shop.admit(a);
  ASSERT_TRUE(o.grant) << o.error();
  EXPECT_EQ(shop.balance(merchant()), 0);
  std::promise<net::Headers> done;
  o.grant->finish(600, true, [&](net::Headers h) { done.set_value(std::move(h)); });
  const Json said = response_of(done.get_future().get());
  EXPECT_EQ(said["success"], true) << said;
  EXPECT_EQ(said["amount"], "1200");
  EXPECT_EQ(shop.balance(merchant()), 1200);
  o.grant.reset();
  EXPECT_NE(shop.admit(a).error(), "");
}

TEST(Upto, APermitIsAskedForThatOutlastsTheLongestAnswer) {
  Shop shop("test_dollar", {Scheme::kUpto, Scheme::kExact});
  NEEDS_CHAIN(shop);
  shop.close();
  shop.terms.answer_seconds = 600;
  shop.open();
  const auto wanted = shop.admit(shop.ask());
  const Json accepts = decoded(*net::find_header(wanted.refusal->headers, "PAYMENT-REQUIRED"))["accepts"];
  EXPECT_EQ(accepts.at(0)["maxTimeoutSeconds"], 720) << "the answer, and then its settlement";
  EXPECT_EQ(accepts.at(1)["maxTimeoutSeconds"], 120) << "settled before the answer";
  const evm::Key key = payer_with_allowance(shop);
  EvmPayer payer(key, 1'000'000);
  const auto o = shop.admit(shop.paid(payer));
  ASSERT_TRUE(o.grant) << o.error();
  ASSERT_TRUE(o.grant->end());
  const std::chrono::duration<double> left = *o.grant->end() - std::chrono::system_clock::now();
  EXPECT_GT(left.count(), 600);
  EXPECT_LT(left.count(), 700) << "something is left to settle in";
}

// While one is there nothing that this program writes reaches a file.
struct FullDisk {
  rlimit was{};
  FullDisk() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    const rlimit none{0, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &was); }
};

TEST(Exact, AStoreThatCannotBeWrittenLosesNoPaymentAndIsNotTheClientsFault) {
  Shop shop;
  NEEDS_CHAIN(shop);
  const EvmPayer payer(shop.payer(), 1'000'000);
  const Ask before = shop.paid(payer, "before"), after = shop.paid(payer, "after");
  {
    const FullDisk full;
    const auto o = shop.admit(before);
    ASSERT_TRUE(o.refusal);
    EXPECT_EQ(o.refusal->status, 503);
    EXPECT_EQ(o.error(), "unexpected_verify_error") << "and nothing of our files";
  }
  EXPECT_TRUE(shop.admit(before).grant) << "nothing was sent, and its nonce is free";
  shop.chain->rpc().call("evm_setAutomine", {false});
  auto waits = shop.begin(after);
  const evm::Address settling = Shop::settling_key().address();
  within(10, [&] { return shop.chain->rpc().nonce(settling, "pending") > shop.chain->rpc().nonce(settling); });
  {
    const FullDisk full;
    shop.chain->mine();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const auto o = waits.get();
  EXPECT_TRUE(o.grant) << "mined while that could not be kept: " << o.error();
}

TEST(Upto, WhatWasDeliveredWhileTheStoreCannotBeWrittenIsCollectedAndGrantedOnce) {
  Shop shop("test_dollar", {Scheme::kUpto});
  NEEDS_CHAIN(shop);
  EvmPayer payer(payer_with_allowance(shop), 1'000'000);
  const Ask a = shop.paid(payer);
  auto o = shop.admit(a);
  ASSERT_TRUE(o.grant) << o.error();
  {
    const FullDisk full;
    o.grant->finish(600, true, [](const net::Headers&) {});
    o.grant.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_NE(shop.admit(a).error(), "");
  within(20, [&] { return shop.balance(merchant()) != 0; });
  EXPECT_EQ(shop.balance(merchant()), 1200);
}

TEST(Upto, PermitsOfOnePayerAreGrantedForNoMoreThanItHas) {
  Shop shop("test_dollar", {Scheme::kUpto});
  NEEDS_CHAIN(shop);
  const evm::Key key = payer_with_allowance(shop);
  shop.send(key, shop.usdc,
            evm::abi_call("transfer(address,uint256)",
                          {evm::AbiValue::address(evm::Anvil::account(0).address()), evm::AbiValue::number(995'000)}));
  EvmPayer payer(key, 1'000'000);
  const Ask third = shop.paid(payer, "3");
  auto one = shop.admit(shop.paid(payer, "1")), two = shop.admit(shop.paid(payer, "2"));
  ASSERT_TRUE(one.grant && two.grant) << "5,000 are enough for two of 2,000";
  EXPECT_EQ(shop.admit(third).error(), "permit2_insufficient_balance");
  std::promise<net::Headers> done;
  one.grant->finish(0, true, [&](net::Headers h) { done.set_value(std::move(h)); });
  done.get_future().get();
  one.grant.reset();
  auto now = shop.admit(third);
  EXPECT_TRUE(now.grant) << "what the first did not use is free again: " << now.error();
  now.grant.reset();  // neither used nor owed
  two.grant.reset();
  EXPECT_TRUE(shop.admit(shop.paid(payer, "4")).grant);
}

TEST(Upto, WhatIsOwedIsCollectedByTheNextServer) {
  Shop shop("test_dollar", {Scheme::kUpto});
  NEEDS_CHAIN(shop);
  const evm::Key key = payer_with_allowance(shop);
  EvmPayer payer(key, 1'000'000);
  const Ask a = shop.paid(payer);
  std::string kept;
  {
    const auto o = shop.admit(a);
    ASSERT_TRUE(o.grant) << o.error();
    Record r = *shop.store->find(parse_payment(a.payment_v2, 2).key());
    EXPECT_EQ(r.state, State::kGranted);
    r.state = State::kOwed;  // as a server leaves it that was killed after it had answered
    r.amount = "800";
    shop.store->put(r);
  }
  shop.close();
  shop.open();
  within(60, [&] { return shop.balance(merchant()) != 0; });
  EXPECT_EQ(shop.balance(merchant()), 800);
}

TEST(Upto, WhatTheNodeRefusesIsTriedAgainWhileThePermitLasts) {
  Shop shop("test_dollar", {Scheme::kUpto});
  NEEDS_CHAIN(shop);
  const evm::Key key = shop.payer();
  shop.chain->rpc().call("anvil_setBalance", {evm::text_of(key.address()), "0xde0b6b3a7640000"});
  const auto allow = [&](uint64_t most) {
    shop.send(key, shop.usdc,
              evm::abi_call("approve(address,uint256)",
                            {evm::AbiValue::address(*evm::parse_address(evm::kPermit2)), evm::AbiValue::number(most)}));
  };
  allow(1'000'000);
  EvmPayer payer(key, 1'000'000);
  const auto o = shop.admit(shop.paid(payer));
  ASSERT_TRUE(o.grant) << o.error();
  allow(0);
  std::promise<net::Headers> done;
  o.grant->finish(600, true, [&](net::Headers h) { done.set_value(std::move(h)); });
  EXPECT_EQ(response_of(done.get_future().get())["errorReason"], "settlement_pending");
  allow(1'000'000);
  within(20, [&] { return shop.balance(merchant()) != 0; });
  EXPECT_EQ(shop.balance(merchant()), 1200);
}

TEST(Store, IsOneServersAtATime) {
  const std::string path = testing::TempDir() + "mxt_pay_store_" + std::to_string(getpid());
  Store one(path);
  EXPECT_THROW(Store two(path), Error);
  Record r;
  r.key = "k";
  r.request = "r";
  r.amount = "5";
  r.identifier = "an-identifier-of-mine";
  one.put(r);
  EXPECT_EQ(one.find_identifier("an-identifier-of-mine")->key, "k");
  EXPECT_FALSE(one.find("other"));
  for (const char* suffix : {"", ".lock", "-wal", "-shm"}) fs::remove(path + suffix);
}

}  // namespace
}  // namespace mxt::pay
