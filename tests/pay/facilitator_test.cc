// A facilitator that settles, is down, loses its answers, or lies.
#include "pay/facilitator.h"

#include "net/test_server.h"
#include "pay/shop.h"

namespace mxt::pay {
namespace {

enum class Mood { kHonest, kDown, kSilent, kLies, kLiesWithAHash, kRefuses };

// Settles on the shop's own chain, as its mood is.
struct Facilitator {
  Shop shop;
  Mood mood = Mood::kHonest;
  int settled = 0;
  std::unique_ptr<net::TestServer> server;
  std::unique_ptr<Meter> meter;

  Facilitator() {
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
    if (mood == Mood::kDown) return {503, {}, "down"};
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
    EXPECT_EQ(j["paymentRequirements"]["scheme"], "exact");
    evm::SendSettings s;
    s.chain_id = 84532;
    s.poll_seconds = 0.02;
    const auto sent = evm::send_transaction(shop.chain->rpc(), Shop::settling_key(), shop.usdc, settlement_call(p, 0),
                                            s, Json(), [](const Json&) {});
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
  f.mood = Mood::kDown;
  EXPECT_EQ(f.shop.admit(a).error(), "unexpected_settle_error");
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

}  // namespace
}  // namespace mxt::pay
