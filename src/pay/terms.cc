#include "pay/terms.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "evm/abi.h"
#include "evm/typed_data.h"

namespace mxt::pay {
namespace {

// Circle's own list of USDC addresses.
constexpr Network kNetworks[] = {{"base", 8453, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"},
                                 {"base-sepolia", 84532, "0x036CbD53842c5426634e7929541eC2318f3dCF7e"}};

evm::U256 power_of_ten(int n) { return pow(evm::U256(10), static_cast<unsigned>(n)); }

// A client may name its payment, and then ask again for what it has paid. As the SDK declares it.
Json identifier_extension() {
  return {{"info", {{"required", false}}},
          {"schema",
           {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"type", "object"},
            {"properties",
             {{"required", {{"type", "boolean"}}},
              {"id", {{"type", "string"}, {"minLength", 16}, {"maxLength", 128}, {"pattern", "^[a-zA-Z0-9_-]+$"}}}}},
            {"required", {"required"}}}}};
}

}  // namespace

std::string_view text_of(Scheme s) { return s == Scheme::kExact ? "exact" : "upto"; }

const Network& network_of(std::string_view name) {
  for (const Network& n : kNetworks)
    if (n.name == name) return n;
  fail_missing("publish.billing.x402.network: {}: this build takes payments on base and base-sepolia", name);
}

std::string caip2(uint64_t chain_id) { return fmt::format("eip155:{}", chain_id); }

Token read_token(evm::Rpc& rpc, const Network& network, const std::string& asset) {
  Token t;
  t.address = evm::address_setting(asset == "USDC" ? std::string(network.usdc) : asset, "publish.billing.x402.asset");
  if (!rpc.has_code(t.address))
    fail_input("{}: publish.billing.x402.asset: there is no token at {} on {}", rpc.name(), evm::text_of(t.address),
               network.name);
  const auto ask = [&](const char* call) { return rpc.eth_call(t.address, evm::selector(call)); };
  try {
    t.name = evm::AbiReader(ask("name()"), "the token's name").bytes(0);
    t.version = evm::AbiReader(ask("version()"), "the token's version").bytes(0);
    const evm::U256 decimals = evm::AbiReader(ask("decimals()"), "the token's decimals").number(0);
    if (decimals > 36) fail_input("the token has {} decimals", evm::decimal(decimals));
    t.decimals = static_cast<int>(decimals);
  } catch (const Error& e) {
    fail_input("publish.billing.x402.asset: {} is no token with EIP-3009: {}", evm::text_of(t.address), e.what());
  }
  return t;
}

Price::Price(double per_1k, int decimals) : numerator_(0), denominator_(1000) {
  MXT_ASSERT(std::isfinite(per_1k) && per_1k >= 0);
  // The shortest decimal text of the number is what somebody wrote.
  std::string text = fmt::format("{:.17f}", per_1k);
  if (const std::string shortest = fmt::format("{}", per_1k); shortest.find('e') == std::string::npos) text = shortest;
  const size_t point = text.find('.');
  for (const char c : text)
    if (c != '.') numerator_ = numerator_ * 10 + (c - '0');
  const int digits = point == std::string::npos ? 0 : static_cast<int>(text.size() - point - 1);
  numerator_ *= power_of_ten(decimals);
  denominator_ *= power_of_ten(digits);
}

evm::U256 Price::of(int64_t tokens) const { return (numerator_ * evm::U256(tokens) + denominator_ - 1) / denominator_; }

std::string network_text(const Terms& t, int version) {
  if (t.algorand) return t.algorand->network;
  return version == 2 ? caip2(t.network->chain_id) : std::string(t.network->name);
}

std::string pay_to_text(const Terms& t) {
  return t.algorand ? algorand::text_of(t.algorand->pay_to) : evm::text_of(t.pay_to);
}

int64_t hold_seconds(const Terms& t, Scheme s) {
  return t.timeout_seconds + (s == Scheme::kUpto ? t.answer_seconds : 0);
}

Json requirement_v2(const Terms& t, Scheme s, const evm::U256& amount) {
  if (t.algorand) {
    Json extra = Json::object();
    if (t.algorand->fee_payer) extra["feePayer"] = algorand::text_of(*t.algorand->fee_payer);
    return {{"scheme", text_of(s)},
            {"network", network_text(t, 2)},
            {"amount", evm::decimal(amount)},
            {"asset", std::to_string(t.algorand->asset)},
            {"payTo", pay_to_text(t)},
            {"maxTimeoutSeconds", t.timeout_seconds},
            {"extra", extra}};
  }
  Json extra = {{"name", t.token.name}, {"version", t.token.version}};
  if (s == Scheme::kUpto) {
    extra["assetTransferMethod"] = "permit2";
    extra["facilitatorAddress"] = evm::text_of(t.facilitator);
  }
  return {{"scheme", text_of(s)},
          {"network", caip2(t.network->chain_id)},
          {"amount", evm::decimal(amount)},
          {"asset", evm::text_of(t.token.address)},
          {"payTo", evm::text_of(t.pay_to)},
          {"maxTimeoutSeconds", hold_seconds(t, s)},
          {"extra", extra}};
}

Json requirement_v1(const Terms& t, const evm::U256& amount, const Resource& r) {
  return {{"scheme", "exact"},
          {"network", t.network->name},
          {"maxAmountRequired", evm::decimal(amount)},
          {"resource", r.url},
          {"description", r.description},
          {"mimeType", r.mime},
          {"payTo", evm::text_of(t.pay_to)},
          {"maxTimeoutSeconds", t.timeout_seconds},
          {"asset", evm::text_of(t.token.address)},
          {"extra", {{"name", t.token.name}, {"version", t.token.version}}}};
}

Json required_v2(const Terms& t, const evm::U256& amount, const Resource& r, const std::string& error) {
  Json accepts = Json::array();
  for (const Scheme s : t.schemes) accepts.push_back(requirement_v2(t, s, amount));
  return {{"x402Version", 2},
          {"error", error},
          {"resource", {{"url", r.url}, {"description", r.description}, {"mimeType", r.mime}}},
          {"accepts", accepts},
          {"extensions", {{"payment-identifier", identifier_extension()}}}};
}

// Version 1 knows `exact` alone, and no Algorand.
Json required_v1(const Terms& t, const evm::U256& amount, const Resource& r, const std::string& error) {
  Json accepts = Json::array();
  for (const Scheme s : t.schemes)
    if (s == Scheme::kExact && !t.algorand) accepts.push_back(requirement_v1(t, amount, r));
  return {{"x402Version", 1}, {"error", error}, {"accepts", accepts}};
}

}  // namespace mxt::pay
