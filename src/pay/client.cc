#include "pay/client.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "evm/typed_data.h"
#include "pay/offer.h"

namespace mxt::pay {
namespace {

constexpr int kUsdcDigits = 6;

Digest random_word() {
  Digest d{};
  for (size_t i = 0; i < d.size(); i += 4) {
    const uint32_t n = unguessable();
    std::copy_n(reinterpret_cast<const uint8_t*>(&n), 4, d.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return d;
}

// Of "eip155:8453" or "base"; null for one that we do not pay on.
const Network* known_network(const std::string& text) {
  for (const char* name : {"base", "base-sepolia"}) {
    const Network& n = network_of(name);
    if (text == name || text == caip2(n.chain_id)) return &n;
  }
  return nullptr;
}

evm::Address address_at(const Json& j, const char* key) {
  const auto a = evm::parse_address(text_at(j, key));
  if (!a) fail_input("the offer's {} is no address", key);
  return *a;
}

}  // namespace

evm::U256 dollars(const std::string& text) {
  const size_t point = text.find('.');
  std::string digits = text.substr(0, point), rest = point == std::string::npos ? "" : text.substr(point + 1);
  const bool good = !digits.empty() && (digits + rest).find_first_not_of("0123456789") == std::string::npos &&
                    digits.size() < 20 && rest.size() <= kUsdcDigits;
  if (!good) fail_input("{}: dollars are wanted, with at most {} digits behind the point: 0.25", text, kUsdcDigits);
  rest.resize(kUsdcDigits, '0');
  evm::U256 n = 0;
  for (const char c : digits + rest) n = n * 10 + (c - '0');
  return n;
}

Json EvmPayer::sign_exact(const Json& offer, const evm::U256& amount, uint64_t chain_id) const {
  const Json extra = offer.value("extra", Json());
  evm::Authorization a;
  a.from = key_.address();
  a.to = address_at(offer, "payTo");
  a.value = amount;
  a.valid_before = std::time(nullptr) + seconds_of(offer);
  a.nonce = random_word();
  const auto domain =
      evm::domain_separator(text_at(extra, "name"), text_at(extra, "version"), chain_id, address_at(offer, "asset"));
  return {{"signature", evm::hex(key_.sign(evm::typed_digest(domain, evm::struct_hash(a))).bytes())},
          {"authorization",
           {{"from", evm::text_of(a.from)},
            {"to", evm::text_of(a.to)},
            {"value", evm::decimal(a.value)},
            {"validAfter", "0"},
            {"validBefore", evm::decimal(a.valid_before)},
            {"nonce", evm::hex(a.nonce)}}}};
}

Json EvmPayer::sign_upto(const Json& offer, const evm::U256& amount, uint64_t chain_id) const {
  evm::UptoPermit p;
  p.token = address_at(offer, "asset");
  p.amount = amount;
  p.spender = *evm::parse_address(evm::kUptoProxy);
  p.nonce = evm::number_of(evm::bytes_of(random_word()));
  p.deadline = std::time(nullptr) + seconds_of(offer);
  p.to = address_at(offer, "payTo");
  p.facilitator = address_at(offer.value("extra", Json()), "facilitatorAddress");
  const auto digest = evm::typed_digest(evm::permit2_domain(chain_id), evm::struct_hash(p));
  return {
      {"signature", evm::hex(key_.sign(digest).bytes())},
      {"permit2Authorization",
       {{"from", evm::text_of(key_.address())},
        {"permitted", {{"token", evm::text_of(p.token)}, {"amount", evm::decimal(p.amount)}}},
        {"spender", evm::text_of(p.spender)},
        {"nonce", evm::decimal(p.nonce)},
        {"deadline", evm::decimal(p.deadline)},
        {"witness", {{"to", evm::text_of(p.to)}, {"facilitator", evm::text_of(p.facilitator)}, {"validAfter", "0"}}}}}};
}

bool EvmPayer::can_pay(const Json& offer, int version) const {
  const std::string scheme = text_at(offer, "scheme");
  const Network* network = known_network(text_at(offer, "network"));
  const auto asset = evm::parse_address(text_at(offer, "asset"));
  return network && asset && *asset == *evm::parse_address(network->usdc) &&
         (scheme == "exact" || (scheme == "upto" && version == 2));
}

Json EvmPayer::sign(const Json& offer, const evm::U256& amount) {
  const uint64_t chain_id = known_network(text_at(offer, "network"))->chain_id;
  return text_at(offer, "scheme") == "exact" ? sign_exact(offer, amount, chain_id) : sign_upto(offer, amount, chain_id);
}

net::Headers Payer::pay(const net::HttpResponse& wanted) {
  const std::string* head = wanted.header("PAYMENT-REQUIRED");
  const int version = head ? 2 : 1;
  const auto decoded = head ? from_base64(*head) : std::optional(wanted.body);
  const Json j = decoded ? Json::parse(*decoded, nullptr, false) : Json();
  if (!j.is_object() || j.value("x402Version", Json()) != version || !j.contains("accepts") || !j["accepts"].is_array())
    fail_input("the server wants to be paid, and does not say how in x402");
  std::string others;
  for (const Json& offer : j["accepts"]) {
    const std::string scheme = text_at(offer, "scheme"), where = text_at(offer, "network");
    const auto amount = evm::parse_decimal(text_at(offer, version == 2 ? "amount" : "maxAmountRequired"));
    if (!amount || !can_pay(offer, version)) {
      others += fmt::format(" {} {} on {}", scheme, text_at(offer, "asset"), where);
      continue;
    }
    if (*amount > left_)
      fail_input("the server wants {} millionths of a dollar, and {} are left of --max-usd: {}", evm::decimal(*amount),
                 evm::decimal(left_), printable(text_at(j, "error").substr(0, 200)));
    Json payment = {{"x402Version", version}, {"payload", sign(offer, *amount)}};
    left_ -= *amount;
    valid_seconds_ = seconds_of(offer);
    if (version == 2) {
      payment["accepted"] = offer;
      payment["resource"] = j.value("resource", Json());
    } else {
      payment["scheme"] = scheme;
      payment["network"] = where;
    }
    return {{version == 2 ? "PAYMENT-SIGNATURE" : "X-PAYMENT", to_base64(payment.dump())}};
  }
  fail_input("the server wants to be paid in what is not {}:{}", what(), printable(others.substr(0, 300)));
}

}  // namespace mxt::pay
