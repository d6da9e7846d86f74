// Payments as bytes: what is read, what is refused and why, what a client signs.
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "pay/client.h"
#include "pay/payment.h"

namespace mxt::pay {
namespace {

constexpr int64_t kNow = 1'740'672'000;

evm::Key key() {
  return evm::Key(*evm::from_hex("0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"));
}
evm::Address merchant() { return *evm::parse_address("0x209693Bc6afc0C5328bA36FaF03C514EF312287C"); }

Terms terms(std::vector<Scheme> schemes = {Scheme::kExact, Scheme::kUpto}) {
  Terms t;
  t.network = &network_of("base-sepolia");
  t.token.address = *evm::parse_address(std::string(t.network->usdc));
  t.token.name = "USDC";
  t.token.version = "2";
  t.token.decimals = 6;
  t.pay_to = merchant();
  t.schemes = std::move(schemes);
  t.facilitator = key().address();
  return t;
}

// The payment of facts that eth-account signed: 10,000 to the merchant until 1740672154.
Json official(int version = 2) {
  const Json payload = {{"signature",
                         "0x80fd02a3b44380cbba444c448261279e1c48fd50d2cf4d749c36f447c76105706a6a2ff57d03cea81b7d9c38739"
                         "a168586d766d965e577902693bba3905fe5471b"},
                        {"authorization",
                         {{"from", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"},
                          {"to", "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"},
                          {"value", "10000"},
                          {"validAfter", "0"},
                          {"validBefore", "1740672154"},
                          {"nonce", "0x" + std::string(64, 'a')}}}};
  Json j = {{"x402Version", version}, {"payload", payload}};
  std::string nonce = "0x";
  for (int i = 0; i < 32; ++i) nonce += "ab";
  j["payload"]["authorization"]["nonce"] = nonce;
  if (version == 2) {
    j["accepted"] = requirement_v2(terms(), Scheme::kExact, 10000);
  } else {
    j["scheme"] = "exact";
    j["network"] = "base-sepolia";
  }
  return j;
}

std::string verdict(const Json& j, int version = 2, int64_t now = kNow, const Terms& t = terms(),
                    uint64_t amount = 10000) {
  return check_payment(parse_payment(to_base64(j.dump()), version), t, amount, now);
}

Json changed(const char* pointer, const Json& value, int version = 2) {
  Json j = official(version);
  j[Json::json_pointer(pointer)] = value;
  return j;
}

TEST(Payment, WhatEthAccountSignedPays) {
  EXPECT_EQ(verdict(official()), "");
  EXPECT_EQ(verdict(official(1), 1), "");
}

TEST(Payment, EachThingThatIsWrongHasTheSdksWord) {
  const std::string other = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
  const struct {
    const char* pointer;
    Json value;
    std::string word;
  } kCases[] = {
      {"/payload/authorization/to", other, "invalid_exact_evm_recipient_mismatch"},
      {"/payload/authorization/value", "9999", "invalid_exact_evm_payload_authorization_value_mismatch"},
      {"/payload/authorization/value", "10001", "invalid_exact_evm_payload_authorization_value_mismatch"},
      {"/payload/authorization/validAfter", "1740672001", "invalid_exact_evm_payload_authorization_valid_after"},
      {"/payload/authorization/validBefore", "1740672005", "invalid_exact_evm_payload_authorization_valid_before"},
      {"/payload/authorization/validBefore", "1740672155", "invalid_exact_evm_signature"},
      {"/payload/authorization/from", other, "invalid_exact_evm_signature"},
      {"/payload/authorization/nonce", "0x" + std::string(64, '1'), "invalid_exact_evm_signature"},
      {"/payload/signature", "0x00", "invalid_exact_evm_signature"},
      {"/accepted/network", "eip155:8453", "invalid_exact_evm_network_mismatch"},
      {"/accepted/amount", "1", "invalid_payment_requirements"},
      {"/accepted/payTo", other, "invalid_payment_requirements"},
      {"/accepted/asset", other, "invalid_payment_requirements"},
  };
  for (const auto& c : kCases) EXPECT_EQ(verdict(changed(c.pointer, c.value)), c.word) << c.pointer;
  EXPECT_EQ(verdict(changed("/network", "base", 1), 1), "invalid_exact_evm_network_mismatch");
  EXPECT_EQ(verdict(official(), 2, kNow + 200), "invalid_exact_evm_payload_authorization_valid_before");
  EXPECT_EQ(verdict(official(), 2, kNow, terms({Scheme::kUpto})), "unsupported_scheme");
  Terms main = terms();
  main.network = &network_of("base");
  EXPECT_NE(verdict(official(), 2, kNow, main), "");
}

TEST(Payment, HostileBytesEndInOneLine) {
  const auto refused = [](const std::string& header, int version = 2) {
    try {
      parse_payment(header, version);
      ADD_FAILURE() << header.substr(0, 100);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  };
  for (const char* raw : {"", "%%%", "e30", "bnVsbA==", "W10=", "MQ=="}) refused(raw);
  refused(to_base64(std::string(5000, '[')));
  refused(to_base64(R"({"x402Version":2,"x402Version":2})"));
  refused(to_base64(official(1).dump()));
  refused(to_base64(official(2).dump()), 1);
  for (const char* pointer : {"/x402Version", "/accepted", "/accepted/scheme", "/payload", "/payload/signature",
                              "/payload/authorization", "/payload/authorization/from", "/payload/authorization/value",
                              "/payload/authorization/nonce", "/payload/authorization/validBefore"})
    for (const Json& wrong : {Json(), Json(5), Json("x"), Json(-1), Json::array(), Json::object(), Json("-5"),
                              Json("0x10"), Json(std::string(100, '9'))})
      if (pointer != std::string("/payload/signature") || wrong != "0x10")  // that is one, if a wrong one
        refused(to_base64(changed(pointer, wrong).dump()));
}

TEST(Payment, WhatAClientSignsIsWhatAServerTakes) {
  for (const int version : {1, 2})
    for (const Scheme scheme : {Scheme::kExact, Scheme::kUpto}) {
      if (version == 1 && scheme == Scheme::kUpto) continue;
      const Terms t = terms({scheme});
      Resource r;
      r.url = "http://shop/x";
      net::HttpResponse wanted;
      wanted.status = 402;
      if (version == 2)
        wanted.headers = {{"PAYMENT-REQUIRED", to_base64(required_v2(t, 2000, r, "").dump())}};
      else
        wanted.body = required_v1(t, 2000, r, "").dump();
      EvmPayer payer(key(), 5000);
      const net::Headers h = payer.pay(wanted);
      const Payment p = parse_payment(h.at(0).second, version);
      EXPECT_EQ(check_payment(p, t, 2000, std::time(nullptr)), "") << version << text_of(scheme);
      EXPECT_EQ(payer.left(), 3000);
      EXPECT_NE(parse_payment(payer.pay(wanted).at(0).second, version).key(), p.key());
      EXPECT_THROW(payer.pay(wanted), Error) << "its budget is spent";
      EXPECT_EQ(payer.left(), 1000);
    }
}

TEST(Payer, PaysNothingButDollarsAndReadsNoNonsense) {
  const auto refused = [](const std::string& body) {
    net::HttpResponse r;
    r.status = 402;
    r.body = body;
    EvmPayer payer(key(), 1'000'000);
    EXPECT_THROW(payer.pay(r), Error) << body.substr(0, 100);
    EXPECT_EQ(payer.left(), 1'000'000);
  };
  Resource r;
  Terms other = terms();
  other.token.address = merchant();
  refused(required_v1(other, 5, r, "").dump());
  for (const char* body : {"", "{}", "[]", R"({"x402Version":1})", R"({"x402Version":1,"accepts":[]})",
                           R"({"x402Version":1,"accepts":[1,{"scheme":5}]})", R"({"x402Version":2,"accepts":[]})"})
    refused(body);
}

TEST(Price, IsRoundedUpAndNeverByTheNumbersOwnError) {
  EXPECT_EQ(Price(0.0002, 6).of(1000), 200);
  EXPECT_EQ(Price(0.0002, 6).of(1), 1);
  EXPECT_EQ(Price(0.0002, 6).of(6), 2);
  EXPECT_EQ(Price(0.1, 18).of(1000), evm::U256("100000000000000000"));
  EXPECT_EQ(Price(0.3, 6).of(1'000'000), 300'000'000);
  EXPECT_EQ(Price(1e-7, 6).of(10'000'000), 1'000);
  EXPECT_EQ(Price(0, 6).of(1'000'000), 0);
  EXPECT_EQ(Price(2, 6).of(0), 0);
  EXPECT_EQ(dollars("0.25"), 250'000);
  EXPECT_EQ(dollars("3"), 3'000'000);
  for (const char* wrong : {"", ".", "-1", "1e3", "0.0000001", "1.2.3", "x"})
    EXPECT_THROW(dollars(wrong), Error) << wrong;
}

}  // namespace
}  // namespace mxt::pay
