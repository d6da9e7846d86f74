// A facilitator that settles, is down, loses its answers, or lies.
#include "pay/facilitator.h"

#include "net/test_server.h"
#include "pay/shop.h"

namespace mxt::pay {
namespace {

enum class Mood { kHonest, kDown, kSilent, kLies, kLiesWithAHash, kRefuses, kBreaksOff };

// Settles on the shop's own chain, as its mood is.
struct Facilitator {
  Shop shop;
  Mood mood = Mood::kHonest;
  int settled = 0, asked = 0;
  std::unique_ptr<net::TestServer> server;
  std::unique_ptr<Meter> meter;

  explicit Facilitator(Scheme scheme = Scheme::kExact) : shop("test_dollar", {scheme}) {
    if (!shop.chain) return;
    shop.close();
    server = std::make_unique<net::TestServer>([this](const net::ServerRequest& r) { return answer(r); });
    shop.store = std::make_unique<Store>(shop.store_path);
    open();
  }
  ~Facilitator() { shop.close(); }
  void open() {
    SettleSettings s;
    s.poll_seconds = 0.05;
    s.answer_seconds = 2;
    s.retry_seconds = 0.1;
    s.most_retry_seconds = 0.3;
    net::HttpOptions http;
    http.retry_base_seconds = 0.01;
    shop.meter = std::make_unique<Meter>(
        &shop.chain->rpc(), shop.terms, Price(0.002, 6), *shop.store, [&, s, http](const Terms& t) {
          return std::make_unique<FacilitatorSettler>(shop.chain->rpc(), server->url(), http, t, *shop.store, s);
        });
  }
  net::ServerResponse answer(const net::ServerRequest& r) {
    const std::string json = "application/json";
    if (r.target == "/supported")
      return {200,
              {{"Content-Type", json}},
              R"({"signers":{"eip155:*":[")" + evm::text_of(Shop::settling_key().address()) + R"("]}})"};
    ++asked;
    if (mood == Mood::kDown) return {503, {}, "down"};
    if (mood == Mood::kBreaksOff) return {.headers = {{"Content-Length", "9"}}, .cut_after = 0};
    if (mood == Mood::kRefuses)
      return {200, {{"Content-Type", json}}, R"({"success":false,"errorReason":"insufficient_funds"})"};
    if (mood == Mood::kLies) return {200, {{"Content-Type", json}}, R"({"success":true,"transaction":""})"};
    if (mood == Mood::kLiesWithAHash) {
      const std::string hash =
          shop.chain->rpc().call("eth_getBlockByNumber", {"latest", false}).at("transactions").at(0);
      return {200, {{"Content-Type", json}}, R"({"success":true,"transaction":")" + hash + R"("})"};
    }
    const Json j = Json::parse(r.body);
    const Payment p = parse_payment(to_base64(j["paymentPayload"].dump()), j["x402Version"]);
    const std::string scheme = j["paymentRequirements"]["scheme"];
    EXPECT_EQ(scheme, text_of(p.scheme));
    const Json& wanted = j["paymentRequirements"];
    const evm::U256 amount =
        evm::parse_decimal(wanted.value(p.version == 2 ? "amount" : "maxAmountRequired", "")).value();
    evm::SendSettings s;
    s.chain_id = 84532;
    s.poll_seconds = 0.02;
    const auto sent = evm::send_transaction(shop.chain->rpc(), Shop::settling_key(), settlement_contract(p, shop.terms),
                                            settlement_call(p, amount), s, Json(), [](const Json&) {});
    ++settled;
    if (mood == Mood::kSilent) return {500, {}, ""};
    return {200, {{"Content-Type", json}}, R"({"success":true,"transaction":")" + evm::hex(sent.hash) + R"("})"};
  }
};

TEST(Facilitator, SettlesAndTheChainIsAskedWhetherItDid) {
  Facilitator f;
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  EXPECT_EQ(facilitator_signer(f.server->url(), {}, 84532), Shop::settling_key().address());
  EvmPayer payer(f.shop.payer(), 1'000'000);
  for (const int version : {1, 2}) EXPECT_TRUE(f.shop.admit(f.shop.paid(payer, "r", version)).grant) << version;
  EXPECT_EQ(f.shop.balance(merchant()), 4000);

  f.mood = Mood::kLies;
  EXPECT_EQ(f.shop.admit(f.shop.paid(payer)).error(), "invalid_exact_evm_transfer_event_mismatch");
  f.mood = Mood::kLiesWithAHash;
  EXPECT_EQ(f.shop.admit(f.shop.paid(payer)).error(), "invalid_exact_evm_transfer_event_mismatch");
  f.mood = Mood::kRefuses;
  EXPECT_EQ(f.shop.admit(f.shop.paid(payer)).error(), "insufficient_funds");
  EXPECT_EQ(f.shop.balance(merchant()), 4000);
}

TEST(Facilitator, ThatIsDownIsAskedAgainWithTheSamePaymentAndOneThatLostItsAnswerIsNot) {
  Facilitator f;
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  EvmPayer payer(f.shop.payer(), 1'000'000);
  const Ask a = f.shop.paid(payer);
  for (const Mood mood : {Mood::kDown, Mood::kBreaksOff}) {
    f.mood = mood;
    EXPECT_EQ(f.shop.admit(a).error(), "settlement_pending") << "whoever gave it up would pay anew";
  }
  f.mood = Mood::kHonest;
  EXPECT_TRUE(f.shop.admit(a).grant);
  f.mood = Mood::kSilent;
  EXPECT_TRUE(f.shop.admit(f.shop.paid(payer)).grant) << "it settled, and the chain says so";
  EXPECT_EQ(f.settled, 2);
  EXPECT_EQ(f.shop.balance(merchant()), 4000);
}

TEST(Facilitator, AnAuthorizationThatWasUsedElsewhereIsRefused) {
  Facilitator f;
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  EvmPayer payer(f.shop.payer(), 1'000'000);
  const Ask a = f.shop.paid(payer);
  f.shop.send(evm::Anvil::account(1), f.shop.usdc, settlement_call(parse_payment(a.payment_v2, 2), 0));
  EXPECT_EQ(f.shop.admit(a).error(), "invalid_exact_evm_nonce_already_used");
  EXPECT_EQ(f.settled, 0);
}

// An answer of 600 tokens that was delivered for what is used; what its end says of the payment.
struct Delivered {
  std::string key;
  Json said;
};
Delivered deliver(Facilitator& f, int64_t timeout_seconds = 120) {
  f.shop.terms.timeout_seconds = timeout_seconds;
  f.shop.meter.reset();
  f.open();
  const evm::Key key = payer_with_allowance(f.shop);
  EvmPayer payer(key, 1'000'000);
  const Ask a = f.shop.paid(payer);
  const auto o = f.shop.admit(a);
  EXPECT_TRUE(o.grant) << o.error();
  if (!o.grant) return {};
  std::promise<net::Headers> done;
  o.grant->finish(600, true, [&](net::Headers h) { done.set_value(std::move(h)); });
  return {parse_payment(a.payment_v2, 2).key(), response_of(done.get_future().get())};
}

bool within(double seconds, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

TEST(Facilitator, IsAskedAgainForWhatIsOwedUntilItSettles) {
  Facilitator f(Scheme::kUpto);
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  for (const Mood mood : {Mood::kDown, Mood::kRefuses, Mood::kLies, Mood::kLiesWithAHash}) {
    f.mood = mood;
    f.asked = 0;
    const evm::U256 before = f.shop.balance(merchant());
    const Delivered d = deliver(f);
    EXPECT_EQ(d.said["errorReason"], "settlement_pending") << d.said;
    EXPECT_TRUE(within(20, [&] { return f.asked >= 3; })) << f.asked;
    EXPECT_EQ(f.shop.store->find(d.key)->state, State::kOwed);
    f.mood = Mood::kHonest;
    EXPECT_TRUE(within(20, [&] { return f.shop.store->find(d.key)->state == State::kServed; }));
    EXPECT_EQ(f.shop.balance(merchant()), before + 1200);
  }
}

TEST(Facilitator, ThatSettledWhatIsOwedAndLostItsAnswerIsNotAskedAgain) {
  Facilitator f(Scheme::kUpto);
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  f.mood = Mood::kSilent;
  const Delivered d = deliver(f);
  EXPECT_EQ(d.said["success"], true) << d.said;
  EXPECT_EQ(f.settled, 1);
  EXPECT_EQ(f.shop.store->find(d.key)->state, State::kServed);
  EXPECT_EQ(f.shop.balance(merchant()), 1200);
}

TEST(Facilitator, WhatIsOwedIsLostAfterThePermitHasEndedAndThatIsSaid) {
  Facilitator f(Scheme::kUpto);
  if (!f.shop.chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)";
  f.mood = Mood::kDown;
  testing::internal::CaptureStderr();
  const Delivered d = deliver(f, 8);
  EXPECT_TRUE(within(30, [&] { return f.shop.store->find(d.key)->state == State::kFailed; }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("1200 of the smallest unit of USDC is lost"), std::string::npos) << said;
  const int asked = f.asked;
  f.mood = Mood::kHonest;
  f.shop.meter.reset();
  f.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(f.asked, asked);
  EXPECT_EQ(f.shop.balance(merchant()), 0);
}

}  // namespace
}  // namespace mxt::pay
