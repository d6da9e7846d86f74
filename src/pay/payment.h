// What a client sends with a request, taken apart and held against the terms.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "evm/key.h"
#include "evm/typed_data.h"
#include "pay/terms.h"

namespace mxt::pay {

// Of Algorand: transactions that succeed or fail together, and which of them pays.
struct AlgorandGroup {
  size_t index = 0;
  std::vector<algorand::Transaction> transactions;
};

struct Payment {
  int version = 2;
  Scheme scheme = Scheme::kExact;
  std::string network;                      // as it said it
  Json accepted;                            // version 2: the offer that it took
  Json whole;                               // all of it, for a facilitator
  std::optional<evm::Authorization> exact;  // one of the three
  std::optional<evm::UptoPermit> upto;
  std::optional<AlgorandGroup> group;
  std::string signature;
  const evm::Address& payer() const { return payer_; }  // of an EVM chain
  std::string payer_text() const;
  // Names it for ever: the asset, who pays and the nonce.
  std::string key() const;
  evm::Address payer_{};
};

// Of PAYMENT-SIGNATURE (version 2) or X-PAYMENT (version 1). Errors (kBadInput): no base64, no JSON, wrong shape.
Payment parse_payment(std::string_view header, int version);

// "" where it pays `amount` (exact: that; upto: at most that) on these terms at `now`, as far as can be seen without
// the chain; else the SDK's word for what is wrong.
std::string check_payment(const Payment& p, const Terms& t, const evm::U256& amount, int64_t now);

// Whether its nonce is used on the chain: an authorization or a permit that settled, or was withdrawn. Not of Algorand.
// Errors: kBadInput where the node does not answer.
bool is_used(evm::Rpc& rpc, const Payment& p, const Terms& t);

// What settles it. `used`: of an upto payment, at most what it permits.
std::string settlement_call(const Payment& p, const evm::U256& used);
// The contract that is called.
evm::Address settlement_contract(const Payment& p, const Terms& t);

}  // namespace mxt::pay
