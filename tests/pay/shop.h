// A shop on a chain of its own: a dollar at USDC's address on Base Sepolia, payers who have some, and the other side's
// words.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/base64.h"
#include "base/files.h"
#include "evm/abi.h"
#include "evm/anvil.h"
#include "evm/send.h"
#include "pay/client.h"
#include "pay/meter.h"

namespace mxt::pay {

inline evm::Address merchant() { return *evm::parse_address("0x209693Bc6afc0C5328bA36FaF03C514EF312287C"); }

struct Shop {
  std::unique_ptr<evm::Anvil> chain;
  evm::Address usdc = *evm::parse_address(std::string(network_of("base-sepolia").usdc));
  std::string store_path;
  Terms terms;
  std::unique_ptr<Store> store;
  std::unique_ptr<Meter> meter;

  // Null chain where anvil is not installed. `dollar`: which contract stands at USDC's address.
  explicit Shop(const std::string& dollar = "test_dollar", std::vector<Scheme> schemes = {Scheme::kExact},
                std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--chain-id", "84532"});
    chain = evm::Anvil::start(options);
    if (!chain) return;
    const auto code_of = [&](const std::string& contract, const std::string& arguments = "") {
      return chain->rpc().call("eth_getCode", {evm::text_of(chain->deploy(contract, arguments)), "latest"});
    };
    const auto put = [&](const std::string& at, const Json& code) { chain->rpc().call("anvil_setCode", {at, code}); };
    put(evm::text_of(usdc),
        code_of(dollar, evm::abi_encode({evm::AbiValue::bytes("USDC"), evm::AbiValue::bytes("2")})));
    // The name lies in storage (slot 3 of OpenZeppelin's ERC-20), which a code alone does not bring along.
    chain->rpc().call("anvil_setStorageAt", {evm::text_of(usdc), evm::hex(evm::word_of(3)),
                                             evm::hex("USDC" + std::string(27, '\0') + "\x08")});
    put(evm::kPermit2, code_of("test_permit2"));
    put(evm::kUptoProxy, code_of("test_upto_proxy"));
    static int count = 0;
    store_path =
        testing::TempDir() + "mxt_pay_" + std::to_string(getpid()) + "_" + std::to_string(count++) + "/x402.sqlite";
    terms.network = &network_of("base-sepolia");
    terms.token = read_token(chain->rpc(), *terms.network, "USDC");
    terms.pay_to = merchant();
    terms.schemes = std::move(schemes);
    terms.facilitator = settling_key().address();
    open();
  }
  ~Shop() {
    close();
    std::error_code ec;
    if (!store_path.empty()) fs::remove_all(fs::path(store_path).parent_path(), ec);
  }
  static evm::Key settling_key() { return evm::Anvil::account(2); }

  void open() { open(chain->rpc()); }
  void open(evm::Rpc& rpc) {
    store = std::make_unique<Store>(store_path);
    SettleSettings s;
    s.poll_seconds = 0.05;
    s.replace_seconds = 0.5;
    meter = std::make_unique<Meter>(&rpc, terms, Price(0.002, 6), *store, [this, &rpc, s](const Terms& t) {
      return std::make_unique<Settler>(rpc, settling_key(), t, *store, s);
    });
  }
  void close() {
    meter.reset();
    store.reset();
  }

  void send(const evm::Key& key, const evm::Address& to, const std::string& data) {
    evm::SendSettings s;
    s.chain_id = 84532;
    s.poll_seconds = 0.02;
    const auto sent = evm::send_transaction(chain->rpc(), key, to, data, s, Json(), [](const Json&) {});
    EXPECT_TRUE(sent.receipt.succeeded);
  }
  evm::Key payer(uint64_t dollars_millionths = 1'000'000) {
    const evm::Key key = evm::new_key();
    send(evm::Anvil::account(0), usdc,
         evm::abi_call("mint(address,uint256)",
                       {evm::AbiValue::address(key.address()), evm::AbiValue::number(dollars_millionths)}));
    return key;
  }
  evm::U256 balance(const evm::Address& a) {
    return evm::AbiReader(chain->rpc().eth_call(usdc, evm::abi_call("balanceOf(address)", {evm::AbiValue::address(a)})),
                          "token")
        .number(0);
  }

  struct Outcome {
    std::optional<Answer> refusal;
    std::shared_ptr<Grant> grant;
    // The words of a refusal.
    std::string error() const { return refusal ? Json::parse(refusal->body).at("error").get<std::string>() : ""; }
  };
  // Asks for 500 + 500 tokens of `request`: 2,000 millionths of a dollar.
  Ask ask(const std::string& request = "r") const {
    Ask a;
    a.resource = "http://shop/v1/chat/completions";
    a.request = request;
    a.prompt_tokens = a.most_tokens = 500;
    return a;
  }
  std::future<Outcome> begin(const Ask& a) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    auto future = promise->get_future();
    meter->admit(
        a, [promise](Answer r) { promise->set_value({std::move(r), nullptr}); },
        [promise](std::shared_ptr<Grant> g) { promise->set_value({std::nullopt, std::move(g)}); });
    return future;
  }
  Outcome admit(const Ask& a) { return begin(a).get(); }

  // What a client sends after the server's 402. `version` 1 sees the body alone.
  Ask paid(const EvmPayer& payer, const std::string& request = "r", int version = 2) {
    EvmPayer copy = payer;
    return paid(copy, request, version);
  }
  Ask paid(EvmPayer& payer, const std::string& request = "r", int version = 2) {
    Ask a = ask(request);
    const Outcome o = admit(a);
    net::HttpResponse r;
    r.status = o.refusal->status;
    if (version == 2) r.headers = o.refusal->headers;
    r.body = o.refusal->body;
    const net::Headers h = payer.pay(r);
    EXPECT_EQ(h.at(0).first, version == 2 ? "PAYMENT-SIGNATURE" : "X-PAYMENT");
    (version == 2 ? a.payment_v2 : a.payment_v1) = h.at(0).second;
    return a;
  }
};

// A payer with a dollar whom Permit2 may take it from, and with ether for that approval.
inline evm::Key payer_with_allowance(Shop& shop) {
  const evm::Key key = shop.payer();
  shop.chain->rpc().call("anvil_setBalance", {evm::text_of(key.address()), "0xde0b6b3a7640000"});
  shop.send(key, shop.usdc,
            evm::abi_call("approve(address,uint256)", {evm::AbiValue::address(*evm::parse_address(evm::kPermit2)),
                                                       evm::AbiValue::number(1'000'000)}));
  return key;
}

inline Json decoded(const std::string& base64) { return Json::parse(*from_base64(base64)); }
inline Json response_of(const net::Headers& headers, const char* name = "PAYMENT-RESPONSE") {
  const std::string* h = net::find_header(headers, name);
  return h ? decoded(*h) : Json();
}

}  // namespace mxt::pay
