// Algorand: bytes against py-algorand-sdk's, what pays and what does not, settlement through an algod of the test's
// own, and the official client against a strict one.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/within.h"
#include "evm/types.h"
#include "folders.h"
#include "net/test_server.h"
#include "pay/algorand.h"
#include "pay/client.h"
#include "pay/meter.h"

namespace mxt::pay {
namespace {

using algorand::Transaction;

const Json& golden() {
  static const Json j = read_json_file(std::string(kSourceDir) + "/tests/golden/pay/algorand.json");
  return j;
}
std::string seed(size_t i) { return *evm::from_hex("0x" + golden()["seeds"][i].get<std::string>()); }
algorand::Address who(size_t i) { return *algorand::parse_address(golden()["addresses"][i].get<std::string>()); }
std::string genesis() { return *from_base64(golden()["genesis"].get<std::string>()); }
Json bytes(const std::string& b) { return Json::binary({b.begin(), b.end()}); }
Json bytes(const algorand::Address& a) { return Json::binary({a.begin(), a.end()}); }

Json transfer(uint64_t amount = 2000) {
  return {{"type", "axfer"},
          {"snd", bytes(who(0))},
          {"arcv", bytes(who(1))},
          {"aamt", amount},
          {"xaid", 10458941},
          {"fee", 1000},
          {"fv", 1000},
          {"lv", 1010},
          {"gen", "test-v1"},
          {"gh", bytes(genesis())}};
}
Transaction signed_by(size_t i, const Json& fields) {
  Transaction t(fields);
  t.sign(seed(i));
  return t;
}

TEST(AlgorandBytes, AreTheSdksInBothDirections) {
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(algorand::text_of(algorand::address_of(seed(i))), golden()["addresses"][i].get<std::string>());
    std::string wrong = golden()["addresses"][i];
    wrong[5] = wrong[5] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(algorand::parse_address(wrong));
  }
  for (const auto& [name, c] : golden()["cases"].items()) {
    std::vector<Transaction> group;
    for (const Json& row : c["transactions"]) {
      const std::string raw = *from_base64(row["signed"].get<std::string>()),
                        fields = *from_base64(row["unsigned"].get<std::string>());
      const Transaction t = Transaction::parse(raw);
      EXPECT_EQ(t.encoded(), raw) << name;
      EXPECT_EQ(t.encoded_fields(), fields) << name;
      EXPECT_EQ(t.id(), row["id"].get<std::string>()) << name;
      EXPECT_TRUE(t.is_signed_by_its_sender()) << name;
      Transaction again = Transaction::parse(fields);
      EXPECT_FALSE(again.is_signed());
      again.sign(seed(row["signer"]));
      EXPECT_EQ(again.encoded(), raw) << name;
      again.sign(seed(1 - row["signer"].get<size_t>()));
      EXPECT_FALSE(again.is_signed_by_its_sender()) << name;
      group.push_back(t);
    }
    EXPECT_EQ(to_base64(algorand::group_id(group)), c["group"].get<std::string>()) << name;
    if (group.size() > 1) {
      EXPECT_EQ(group[0].bytes("grp"), algorand::group_id(group));
    }
  }
}

TEST(AlgorandBytes, OfNobodyOrOfAnotherFormAreRefused) {
  const auto refused = [](const std::string& raw) {
    try {
      Transaction::parse(raw);
      ADD_FAILURE() << raw.size();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
    }
  };
  const std::string good = signed_by(0, transfer()).encoded();
  for (size_t n = 0; n < good.size(); ++n) refused(good.substr(0, n));
  refused(good + std::string(1, '\0'));
  refused(std::string(5000, '\x91'));
  refused(std::string(4000, '\x91'));
  const auto packed = [](const Json& j) {
    const auto b = Json::to_msgpack(j);
    return std::string(b.begin(), b.end());
  };
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"aamt", 0},
                                                                            {"aamt", -5},
                                                                            {"aamt", "5"},
                                                                            {"aamt", 1.5},
                                                                            {"fee", 0},
                                                                            {"gen", ""},
                                                                            {"snd", bytes("short")},
                                                                            {"arcv", bytes(std::string(32, '\0'))},
                                                                            {"type", "appl"},
                                                                            {"type", 5},
                                                                            {"apid", 7},
                                                                            {"note", bytes("")},
                                                                            {"note", bytes(std::string(1025, 'x'))},
                                                                            {"snd", "text"}}) {
    Json j = transfer();
    j[key] = value;
    refused(packed(j));
  }
  Json whole = {{"txn", transfer()}};
  whole["lsig"] = {{"l", bytes("x")}};
  refused(packed(whole));
  whole = {{"txn", transfer()}, {"sig", bytes("short")}};
  refused(packed(whole));
  // A number in more bytes than it needs: the same values, other bytes.
  std::string wide = Transaction(transfer(5)).encoded_fields();
  const size_t at = wide.find("aamt") + 4;
  ASSERT_EQ(wide[at], 5);
  wide.replace(at, 1, std::string("\xcc\x05"));
  refused(wide);
}

AlgorandTerms terms() {
  AlgorandTerms t;
  t.genesis_hash = genesis();
  t.network = "algorand:" + golden()["genesis"].get<std::string>().substr(0, 32);
  t.asset = 10458941;
  t.pay_to = who(1);
  return t;
}

std::string verdict(std::vector<Transaction> group, size_t index = 0) {
  return check_algorand({index, std::move(group)}, terms(), 2000);
}

TEST(AlgorandPayment, EachThingThatIsWrongHasTheSdksWord) {
  EXPECT_EQ(verdict({signed_by(0, transfer())}), "");
  EXPECT_EQ(verdict({signed_by(0, transfer())}, 1), "invalid_exact_avm_payment_index");
  EXPECT_EQ(verdict({Transaction(transfer())}), "invalid_exact_avm_payment_not_signed");
  EXPECT_EQ(verdict({signed_by(1, transfer())}), "invalid_exact_avm_invalid_signature");
  const auto with = [](const char* key, const Json& value) {
    Json j = transfer();
    j[key] = value;
    return verdict({signed_by(0, j)});
  };
  EXPECT_EQ(with("aamt", 1999), "invalid_exact_avm_amount_mismatch");
  EXPECT_EQ(with("aamt", 2001), "invalid_exact_avm_amount_mismatch");
  EXPECT_EQ(with("xaid", 31566704), "invalid_exact_avm_asset_mismatch");
  EXPECT_EQ(with("arcv", bytes(who(0))), "invalid_exact_avm_receiver_mismatch");
  EXPECT_EQ(with("gh", bytes(std::string(32, 'g'))), "invalid_exact_avm_network_mismatch");
  for (const char* key : {"aclose", "rekey", "asnd"})
    EXPECT_EQ(with(key, bytes(who(1))), "invalid_exact_avm_invalid_transaction") << key;
  EXPECT_EQ(with("grp", bytes(std::string(32, 'g'))), "invalid_exact_avm_invalid_group_id");
  const Json pay = {{"type", "pay"}, {"snd", bytes(who(0))}, {"rcv", bytes(who(1))}, {"amt", 2000},
                    {"fee", 1000},   {"fv", 1000},           {"lv", 1010},           {"gh", bytes(genesis())}};
  EXPECT_EQ(verdict({signed_by(0, pay)}), "invalid_exact_avm_not_asset_transfer");

  std::vector<Transaction> group = {Transaction(pay), Transaction(transfer())};
  const std::string id = algorand::group_id(group);
  for (Transaction& t : group) t.set_group(id), t.sign(seed(0));
  EXPECT_EQ(verdict(group, 1), "");
  EXPECT_EQ(verdict({group[1]}), "invalid_exact_avm_invalid_group_id") << "a part of a group";
  EXPECT_EQ(verdict({group[1], group[0]}), "invalid_exact_avm_invalid_group_id") << "another order";
  group[0].set_group(id);
  EXPECT_EQ(verdict(group, 1), "invalid_exact_avm_unsigned_non_facilitator");
}

// A payment whose fee is ours: what of the group is unsigned pays nothing but fees, and not too much of them.
TEST(AlgorandPayment, OfWhichWePayTheFeesAskUsForNothingElse) {
  const algorand::Address us = algorand::address_of(std::string(32, 'f'));
  AlgorandTerms t = terms();
  t.fee_payer = us;
  const Json fees = {{"type", "pay"}, {"snd", bytes(us)}, {"rcv", bytes(us)},      {"fee", 2000},
                     {"fv", 1000},    {"lv", 1010},       {"gh", bytes(genesis())}};
  const auto said = [&](const Json& first, const Json& second, bool sign_first = false) {
    std::vector<Transaction> group = {Transaction(first), Transaction(second)};
    const std::string id = algorand::group_id(group);
    for (Transaction& one : group) one.set_group(id);
    group[1].sign(seed(0));
    if (sign_first) group[0].sign(seed(1));
    return check_algorand({1, group}, t, 2000);
  };
  Json paid = transfer();
  paid.erase("fee");
  EXPECT_EQ(said(fees, paid), "");
  EXPECT_EQ(said(fees, transfer()), "") << "both pay";
  EXPECT_EQ(verdict({signed_by(0, transfer())}), "") << "who pays his own fee may";
  const auto with = [&](const char* key, const Json& value) {
    Json j = fees;
    j[key] = value;
    return said(j, paid);
  };
  EXPECT_EQ(with("fee", 10'000), "");
  EXPECT_EQ(with("fee", 10'001), "invalid_exact_avm_fee_too_high");
  EXPECT_EQ(with("amt", 1), "invalid_exact_avm_invalid_fee_payer");
  EXPECT_EQ(with("snd", bytes(who(1))), "invalid_exact_avm_unsigned_non_facilitator");
  for (const char* key : {"close", "rekey"})
    EXPECT_EQ(with(key, bytes(who(0))), "invalid_exact_avm_invalid_transaction");
  EXPECT_EQ(with("gh", bytes(std::string(32, 'g'))), "invalid_exact_avm_network_mismatch");
  Json takes = transfer();  // somebody else's money, moved by our signature
  takes["snd"] = bytes(us);
  EXPECT_EQ(said(takes, paid), "invalid_exact_avm_invalid_fee_payer");
  EXPECT_EQ(said(fees, takes), "invalid_exact_avm_facilitator_transferring");
  EXPECT_EQ(said(fees, paid, true), "invalid_exact_avm_invalid_signature") << "signed for us by another";
  std::vector<Transaction> three = {Transaction(fees), Transaction(fees), Transaction(paid)};
  const std::string id = algorand::group_id(three);
  for (Transaction& one : three) one.set_group(id);
  three[2].sign(seed(0));
  EXPECT_EQ(check_algorand({2, three}, t, 2000), "");
  t.fee_payer.reset();
  EXPECT_EQ(said(fees, paid), "invalid_exact_avm_unsigned_non_facilitator") << "none is offered";
}

// Takes transactions, confirms them at the second look, forgets and loses what it is told to.
class FakeAlgod {
 public:
  FakeAlgod() : server_([this](const net::ServerRequest& r) { return answer(r); }) {}
  std::string url() const { return server_.url(); }
  std::string refuse;      // its words for the next transactions
  bool lose = false;       // the next answer does not arrive
  int busy = 0;            // so many of the next transactions are answered 429
  bool forgetful = false;  // knows no transaction that is confirmed
  bool pool_error = false;
  int sent = 0;
  std::vector<std::string> bodies;
  Json params = {{"genesis-hash", golden()["genesis"]},
                 {"genesis-id", "test-v1"},
                 {"last-round", 1000},
                 {"min-fee", 1000},
                 {"fee", 0}};
  std::map<std::string, int> looks;
  std::mutex mutex;

 private:
  net::ServerResponse answer(const net::ServerRequest& r) {
    const std::lock_guard lock(mutex);
    const std::string pending = "/v2/transactions/pending/";
    if (r.target == "/v2/transactions/params") return {200, {}, params.dump()};
    if (r.target == "/v2/assets/10458941") return {200, {}, R"({"params":{"unit-name":"USDC","decimals":6}})"};
    if (r.target.starts_with(pending)) {
      const std::string id = r.target.substr(pending.size(), 52);
      if (!looks.contains(id) || (forgetful && looks[id] > 0)) return {404, {}, R"({"message":"not found"})"};
      if (pool_error) return {200, {}, R"({"confirmed-round":0,"pool-error":"overspend"})"};
      return {200, {}, Json{{"confirmed-round", ++looks[id] > 1 ? 1001 : 0}, {"pool-error", ""}}.dump()};
    }
    if (r.method != "POST" || r.target != "/v2/transactions") return {404, {}, R"({"message":"no route"})"};
    if (busy > 0) return --busy, net::ServerResponse{429, {}, R"({"message":"too many requests"})"};
    if (!refuse.empty()) return {400, {}, Json{{"message", refuse}}.dump()};
    ++sent;
    bodies.push_back(r.body);
    // Of several, the last.
    const std::string id = Transaction::parse(r.body.substr(last_of(r.body))).id();
    if (looks.contains(id)) return {400, {}, R"({"message":"transaction already in ledger: )" + id + "\"}"};
    looks[id] = 0;
    net::ServerResponse good{200, {}, "{}"};
    if (lose) {
      lose = false;
      good.headers.emplace_back("Content-Length", "1000");
      good.cut_after = 0;
    }
    return good;
  }
  // Where the last of some transactions begins: they stand one after another, each with its signature in front.
  static size_t last_of(const std::string& bodies) { return bodies.rfind("\x82\xa3sig"); }
  net::TestServer server_;
};

struct AlgorandShop {
  std::string folder = testing::TempDir() + "mxt_algorand_" + std::to_string(getpid());
  std::unique_ptr<algorand::Node> node;
  std::unique_ptr<Store> store;
  std::unique_ptr<Meter> meter;

  // `fee_seed`: of the key that pays fees, "" = the clients do.
  explicit AlgorandShop(const std::string& url, const std::string& pay_to = golden()["addresses"][1],
                        std::string fees = {})
      : fee_seed(std::move(fees)) {
    fs::remove_all(folder);
    net::HttpOptions http;
    http.retry_base_seconds = 0.01;
    node = std::make_unique<algorand::Node>(url, "", http);
    pay_to_ = pay_to;
    open();
  }
  ~AlgorandShop() {
    close();
    fs::remove_all(folder);
  }
  void open() {
    Terms t;
    t.algorand = read_algorand(*node, "USDC", pay_to_, t.token);
    t.schemes = {Scheme::kExact};
    if (!fee_seed.empty()) t.algorand->fee_payer = algorand::address_of(fee_seed);
    store = std::make_unique<Store>(folder + "/x402.sqlite");
    SettleSettings s;
    s.poll_seconds = 0.02;
    s.answer_seconds = 5;
    meter = std::make_unique<Meter>(nullptr, t, Price(0.002, 6), *store, [&, s](const Terms&) {
      return std::make_unique<AlgorandSettler>(*node, *store, fee_seed, s);
    });
  }
  void close() {
    meter.reset();
    store.reset();
  }
  // "" where it is granted, else why not; `served`: and the answer arrived.
  std::string admit(const std::string& header, const std::string& request = "r", bool served = true) {
    Ask a;
    a.resource = "http://shop/v1/chat/completions";
    a.request = request;
    a.prompt_tokens = a.most_tokens = 500;
    a.payment_v2 = header;
    using Outcome = std::pair<std::string, std::shared_ptr<Grant>>;
    std::promise<Outcome> said;
    meter->admit(
        a,
        [&](const Answer& r) {
          last = r;
          said.set_value({Json::parse(r.body).at("error"), nullptr});
        },
        [&](std::shared_ptr<Grant> g) { said.set_value({"", std::move(g)}); });
    const Outcome o = said.get_future().get();  // the grant goes here, so that who asks next finds nobody inside
    if (o.second) o.second->finish(1000, served, [](const net::Headers&) {});
    if (o.second && served) o.second->keeper().sent();
    return o.first;
  }
  Json offer() {
    admit("");
    return Json::parse(*from_base64(*net::find_header(last.headers, "PAYMENT-REQUIRED")));
  }
  std::string payment(const Transaction& t) {
    return to_base64(Json{{"x402Version", 2},
                          {"accepted", offer()["accepts"][0]},
                          {"payload", {{"paymentIndex", 0}, {"paymentGroup", {to_base64(t.encoded())}}}}}
                         .dump());
  }
  Answer last;
  std::string fee_seed;

 private:
  std::string pay_to_;
};

Json numbered(int n) {
  Json j = transfer();
  j["note"] = bytes("payment " + std::to_string(n));
  return j;
}

TEST(AlgorandShop, IsPaidOncePerTransactionAndTellsItsTerms) {
  FakeAlgod algod;
  AlgorandShop shop(algod.url());
  const Json offer = shop.offer()["accepts"][0];
  EXPECT_EQ(offer["network"], "algorand:SGO1GKSzyE7IEPItTxCByw9x8FmnrCDe");
  EXPECT_EQ(offer["asset"], "10458941");
  EXPECT_EQ(offer["payTo"], golden()["addresses"][1]);
  EXPECT_EQ(offer["amount"], "2000");
  const std::string one = shop.payment(signed_by(0, numbered(1)));
  EXPECT_EQ(shop.admit(one), "");
  EXPECT_EQ(shop.admit(one), "invalid_exact_avm_payment_already_used");
  EXPECT_EQ(shop.admit(one, "another request"), "invalid_exact_avm_payment_already_used");
  EXPECT_EQ(algod.sent, 1);
  // Where no answer arrived the same payment lets the same request in again.
  const std::string two = shop.payment(signed_by(0, numbered(2)));
  EXPECT_EQ(shop.admit(two, "r", false), "");
  EXPECT_NE(shop.admit(two, "another"), "");
  EXPECT_EQ(shop.admit(two), "");
  EXPECT_EQ(algod.sent, 2);
  for (const char* wrong : {"nonsense", "e30="}) EXPECT_NE(shop.admit(wrong), "");
  EXPECT_EQ(shop.last.status, 400);
}

TEST(AlgorandShop, WhatTheNodeRefusesOrThrowsAwayIsNotGranted) {
  FakeAlgod algod;
  AlgorandShop shop(algod.url());
  algod.refuse = "TransactionPool.Remember: txn dead: round 2000 outside of 1000--1010";
  EXPECT_EQ(shop.admit(shop.payment(signed_by(0, numbered(1)))), "invalid_exact_avm_settlement_failed");
  algod.refuse.clear();
  algod.pool_error = true;
  EXPECT_EQ(shop.admit(shop.payment(signed_by(0, numbered(2)))), "invalid_exact_avm_confirmation_failed");
}

TEST(AlgorandShop, NoPaymentIsLostWithAnAnswerANodesMemoryOrTheServer) {
  FakeAlgod algod;
  AlgorandShop shop(algod.url());
  algod.lose = true;
  EXPECT_EQ(shop.admit(shop.payment(signed_by(0, numbered(1)))), "");
  algod.busy = 2;
  EXPECT_EQ(shop.admit(shop.payment(signed_by(0, numbered(4)))), "");
  algod.forgetful = true;
  EXPECT_EQ(shop.admit(shop.payment(signed_by(0, numbered(2)))), "");
  algod.forgetful = false;
  // Killed between sending and seeing it confirmed.
  const Transaction t = signed_by(0, numbered(3));
  const std::string header = shop.payment(t);
  Record r;
  r.key = "algorand:" + t.id();
  r.request = "r";
  r.state = State::kSent;
  r.amount = "2000";
  r.payment = {{"version", 2}, {"header", header}, {"resource", "x"}};
  r.attempts = {{"attempts", Json::array()}};
  shop.store->put(r);
  shop.close();
  shop.open();
  within(60, [&] { return shop.store->find(r.key)->state == State::kSettled; });
  EXPECT_EQ(shop.store->find(r.key)->state, State::kSettled);
  EXPECT_EQ(shop.admit(header), "");
}

// An answer of status 402 with this offer alone.
net::HttpResponse wanted(const Json& required) {
  net::HttpResponse r;
  r.status = 402;
  r.headers = {{"PAYMENT-REQUIRED", to_base64(required.dump())}};
  return r;
}

TEST(AlgorandPayer, PaysWithItsOwnFeeAndWithTheServers) {
  for (const std::string& fees : {std::string(), std::string(32, 'f')}) {
    FakeAlgod algod;
    AlgorandShop shop(algod.url(), golden()["addresses"][1], fees);
    EXPECT_EQ(shop.offer()["accepts"][0]["extra"].contains("feePayer"), !fees.empty());
    AlgorandPayer payer(seed(0), *shop.node, 5000);
    const net::Headers h = payer.pay(wanted(shop.offer()));
    EXPECT_EQ(payer.left(), 3000);
    ASSERT_EQ(h.at(0).first, "PAYMENT-SIGNATURE");
    const Payment p = parse_payment(h.at(0).second, 2);
    ASSERT_EQ(p.group->transactions.size(), fees.empty() ? 1u : 2u);
    const Transaction& paid = p.group->transactions.back();
    EXPECT_EQ(paid.number("fee"), fees.empty() ? 1000u : 0u);
    EXPECT_EQ(paid.number("lv"), 1042u) << "120 seconds of rounds";
    EXPECT_EQ(shop.admit(h.at(0).second), "");
    EXPECT_NE(shop.admit(h.at(0).second), "") << "twice";
    // What was sent is signed by all.
    ASSERT_EQ(algod.bodies.size(), 1u);
    const size_t at = algod.bodies[0].rfind("\x82\xa3sig");
    EXPECT_TRUE(Transaction::parse(algod.bodies[0].substr(at)).is_signed_by_its_sender());
    if (!fees.empty()) {
      const Transaction first = Transaction::parse(algod.bodies[0].substr(0, at));
      EXPECT_TRUE(first.is_signed_by_its_sender());
      EXPECT_EQ(first.address("snd"), algorand::address_of(fees));
      EXPECT_EQ(first.number("fee"), 2000u);
    }
    EXPECT_EQ(shop.admit(payer.pay(wanted(shop.offer())).at(0).second), "");
    EXPECT_THROW(payer.pay(wanted(shop.offer())), Error) << "its budget is spent";
  }
}

TEST(AlgorandPayer, PaysNothingButItsNetworksDollarsAtAnOrdinaryFee) {
  FakeAlgod algod;
  AlgorandShop shop(algod.url());
  const Json good = shop.offer();
  AlgorandPayer payer(seed(0), *shop.node, 1'000'000);
  const auto refused = [&](const char* key, const Json& value) {
    Json j = good;
    j["accepts"][0][key] = value;
    EXPECT_THROW(payer.pay(wanted(j)), Error) << key << value;
  };
  refused("scheme", "upto");
  refused("network", "algorand:wGHE2Pwdvd7S12BL5FaOP20EGYesN73k");
  refused("network", "eip155:84532");
  refused("asset", "31566704");
  refused("asset", 10458941);
  refused("payTo", "nobody");
  refused("amount", "0");
  refused("amount", "-5");
  refused("amount", "99999999999999999999999999999999");
  refused("extra", {{"feePayer", "x"}});
  for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{
           {"min-fee", 1'000'000}, {"fee", 1'000'000}, {"fee", -1}, {"last-round", "x"}, {"genesis-hash", "AAAA"}}) {
    const Json before = algod.params[key];
    algod.params[key] = value;
    EXPECT_THROW(payer.pay(wanted(good)), Error) << key << value;
    algod.params[key] = before;
  }
  EXPECT_EQ(payer.left(), 1'000'000) << "nothing was signed";
  Json whole = good;
  whole["accepts"][0]["network"] = "algorand:" + golden()["genesis"].get<std::string>();  // as older texts write it
  EXPECT_EQ(payer.pay(wanted(whole)).size(), 1u);
  algod.params["fee"] = 10;  // a full network
  const Payment p = parse_payment(payer.pay(wanted(good)).at(0).second, 2);
  EXPECT_GE(p.group->transactions[0].number("fee"), 10 * p.group->transactions[0].encoded().size());
}

TEST(AlgorandShop, APaymentWhoseFeesAreOursWaitsForItsKey) {
  FakeAlgod algod;
  const std::string fees(32, 'f');
  AlgorandShop shop(algod.url(), golden()["addresses"][1], fees);
  AlgorandPayer payer(seed(0), *shop.node, 5000);
  const std::string header = payer.pay(wanted(shop.offer())).at(0).second;
  Record r;
  r.key = parse_payment(header, 2).key();
  r.request = "r";
  r.state = State::kSent;
  r.amount = "2000";
  r.payment = {{"version", 2}, {"header", header}, {"resource", "x"}};
  r.attempts = {{"attempts", Json::array()}};
  shop.store->put(r);
  for (const std::string& key : {std::string(), std::string(32, 'g'), fees}) {
    shop.close();
    shop.fee_seed = key;
    shop.open();
    if (key == fees) {
      EXPECT_TRUE(within(60, [&] { return shop.store->find(r.key)->state == State::kSettled; }));
    } else {
      EXPECT_EQ(shop.store->find(r.key)->state, State::kSent);
    }
  }
  EXPECT_EQ(shop.admit(header), "");
}

// tests/pay/algod.py, which py-algorand-sdk and PyNaCl check for.
class StrictAlgod {
 public:
  StrictAlgod(const std::string& python, const std::string& accounts) {
    const std::string algod = std::string(kSourceDir) + "/tests/pay/algod.py";
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      execl(python.c_str(), python.c_str(), algod.c_str(), accounts.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    char line[32] = {};
    FILE* f = fdopen(ends[0], "r");
    if (std::fgets(line, sizeof line, f)) port_ = std::atoi(line);
    std::fclose(f);
  }
  ~StrictAlgod() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int64_t balance(const std::string& address) const { return std::stoll(ask("GET", "/balance/" + address)); }
  std::string ask(const std::string& method, const std::string& path) const {
    net::HttpClient client;
    net::HttpRequest q;
    q.method = method;
    q.url = url() + path;
    return client.send(q).body;
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

TEST(OfficialAlgorandClient, PaysThroughAStrictNode) {
  const char *python = std::getenv("MXT_LIVE_PYTHON"), *packages = std::getenv("MXT_LIVE_NODE_PACKAGES");
  if (!python || !packages)
    GTEST_SKIP() << "set MXT_LIVE_PYTHON (a Python with py-algorand-sdk) and MXT_LIVE_NODE_PACKAGES (a folder with "
                    "@x402/avm, @x402/core and algosdk)";
  const std::string folder = testing::TempDir() + "mxt_algod_" + std::to_string(getpid());
  make_folders(folder);
  const std::string payer = golden()["addresses"][0], merchant = golden()["addresses"][1];
  const std::string fees(32, 'f'), fee_payer = algorand::text_of(algorand::address_of(fees));
  write_file_atomic(folder + "/accounts.json", Json{{"asset", 10458941},
                                                    {"decimals", 6},
                                                    {"genesis", golden()["genesis"]},
                                                    {"accounts",
                                                     {{payer, {{"algos", 10'000'000}, {"asset", 15'000}}},
                                                      {merchant, {{"algos", 0}, {"asset", 0}}},
                                                      {fee_payer, {{"algos", 10'000'000}}}}}}
                                                   .dump());
  const StrictAlgod algod(python, folder + "/accounts.json");
  AlgorandShop shop(algod.url(), merchant, fees);
  const auto pays = [&] {
    write_file_atomic(folder + "/402.json", shop.offer().dump());
    const std::string command = fmt::format("node '{}/tests/pay/pay_algorand.mjs' '{}' '{}/402.json' {} {}", kSourceDir,
                                            packages, folder, golden()["seeds"][0].get<std::string>(), algod.url());
    FILE* p = popen(command.c_str(), "r");
    char buffer[16384] = {};
    const size_t n = fread(buffer, 1, sizeof buffer - 1, p);
    pclose(p);
    std::string out(buffer, n);
    while (out.ends_with('\n')) out.pop_back();
    return out;
  };
  // The fees are ours: the official client's group, and our own client's.
  const std::string free = pays();
  EXPECT_EQ(parse_payment(free, 2).group->transactions.size(), 2u);
  EXPECT_EQ(shop.admit(free), "");
  EXPECT_NE(shop.admit(free), "");
  AlgorandPayer ours(seed(0), *shop.node, 4000);
  EXPECT_EQ(shop.admit(ours.pay(wanted(shop.offer())).at(0).second), "");
  EXPECT_EQ(algod.balance(merchant), 4000);
  EXPECT_EQ(algod.ask("GET", "/algos/" + payer), "10000000");
  EXPECT_EQ(algod.ask("GET", "/algos/" + fee_payer), "9996000");
  // And the clients'.
  shop.close();
  shop.fee_seed.clear();
  shop.open();
  EXPECT_EQ(shop.admit(ours.pay(wanted(shop.offer())).at(0).second), "");
  EXPECT_EQ(algod.balance(merchant), 6000);
  const std::string first = pays();
  EXPECT_EQ(shop.admit(first), "");
  EXPECT_EQ(algod.balance(merchant), 8000);
  EXPECT_NE(shop.admit(first), "");
  EXPECT_NE(shop.admit(first, "another"), "");
  EXPECT_EQ(algod.balance(merchant), 8000);
  algod.ask("POST", "/lose");
  EXPECT_EQ(shop.admit(pays()), "") << "its answer was lost";
  EXPECT_EQ(algod.balance(merchant), 10000);
  // The client's own words, with one byte of the signature or of the amount changed.
  Json changed = Json::parse(*from_base64(pays()));
  std::string raw = *from_base64(changed["payload"]["paymentGroup"][0].get<std::string>());
  raw[20] = static_cast<char>(raw[20] ^ 1);
  changed["payload"]["paymentGroup"][0] = to_base64(raw);
  EXPECT_EQ(shop.admit(to_base64(changed.dump())), "invalid_exact_avm_invalid_signature");
  EXPECT_EQ(shop.admit(pays()), "");
  EXPECT_EQ(shop.admit(pays()), "");
  EXPECT_EQ(algod.balance(merchant), 14000);
  EXPECT_EQ(shop.admit(pays()), "invalid_exact_avm_settlement_failed") << "1,000 are left, and 2,000 are asked for";
  EXPECT_EQ(algod.balance(payer), 1000);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace mxt::pay
