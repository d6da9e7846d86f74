// What is sold, for how much, and the words of x402 that say so (github.com/coinbase/x402, specification versions 1 and
// 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorand/transaction.h"
#include "base/json.h"
#include "evm/rpc.h"
#include "evm/types.h"

namespace mxt::pay {

enum class Scheme { kExact, kUpto };
std::string_view text_of(Scheme s);

struct Network {
  std::string_view name;  // version 1: "base-sepolia"
  uint64_t chain_id = 0;  // version 2: "eip155:84532"
  std::string_view usdc;  // its address there
};
// kBadInput where it is none that can be paid on.
const Network& network_of(std::string_view name);
std::string caip2(uint64_t chain_id);

// An ERC-20 token with EIP-3009, as it describes itself.
struct Token {
  evm::Address address{};
  std::string name, version;  // of its EIP-712 domain
  int decimals = 0;
};
// `asset`: "USDC" or an address; name, version and decimals are asked from the token. kBadInput where it has none.
Token read_token(evm::Rpc& rpc, const Network& network, const std::string& asset);

// A price as it was written, without a rounding of its own.
class Price {
 public:
  // Units of the token for 1,000 tokens of text.
  Price(double per_1k, int decimals);
  // In the token's smallest unit, rounded up.
  evm::U256 of(int64_t tokens) const;

 private:
  evm::U256 numerator_, denominator_;
};

// Where Algorand is the chain: an asset (ASA) and who is paid there.
struct AlgorandTerms {
  std::string network;       // CAIP-2: "algorand:" and 32 letters of the genesis hash in base64
  std::string genesis_hash;  // 32 bytes
  uint64_t asset = 0;
  algorand::Address pay_to{};
  std::optional<algorand::Address> fee_payer;  // whose key pays the fees of a group that asks for it
};

struct Terms {
  const Network* network = nullptr;  // of an EVM chain; with `algorand`: null
  Token token;
  evm::Address pay_to{};
  std::vector<Scheme> schemes;            // as offered, the first first
  evm::Address facilitator{};             // who settles: `upto` binds a payment to it
  int64_t timeout_seconds = 120;          // that a payment is to hold, so that it can be settled
  int64_t answer_seconds = 0;             // the longest that an answer takes: a permit (upto) is collected after it
  std::optional<AlgorandTerms> algorand;  // of `token` then only name and decimals are meant
};
// As version 2 writes them, or as version 1 does ("base").
std::string network_text(const Terms& t, int version);
std::string pay_to_text(const Terms& t);
// That a payment by this scheme is to hold.
int64_t hold_seconds(const Terms& t, Scheme s);

struct Resource {
  std::string url, description = "tokens of a language model", mime = "application/json";
};

// Version 2: the value of PAYMENT-REQUIRED before base64; version 1: the body.
Json required_v2(const Terms& t, const evm::U256& amount, const Resource& r, const std::string& error);
Json required_v1(const Terms& t, const evm::U256& amount, const Resource& r, const std::string& error);
// What of an offer is sent to a facilitator, and what a client accepts.
Json requirement_v2(const Terms& t, Scheme s, const evm::U256& amount);
Json requirement_v1(const Terms& t, const evm::U256& amount, const Resource& r);

}  // namespace mxt::pay
