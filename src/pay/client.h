// The paying side: an answer of status 402 becomes the headers of a second request that pays.
#pragma once

#include <string>

#include "evm/key.h"
#include "net/http.h"
#include "pay/terms.h"

namespace mxt::pay {

// Pays in USDC alone, and never more than its budget in all: what was signed is spent, whether it was settled or not.
class Payer {
 public:
  // `budget`: in USDC's smallest unit, millionths of a dollar.
  Payer(evm::Key key, const evm::U256& budget) : key_(std::move(key)), left_(budget) {}
  // The first offer that can be paid. Errors: kBadInput where the answer is no x402, offers nothing that can be paid,
  // or wants more than is left, with what it wants.
  net::Headers pay(const net::HttpResponse& wanted);
  const evm::U256& left() const { return left_; }
  const evm::Address& address() const { return key_.address(); }

 private:
  Json sign_exact(const Json& offer, const evm::U256& amount, uint64_t chain_id) const;
  Json sign_upto(const Json& offer, const evm::U256& amount, uint64_t chain_id) const;

  evm::Key key_;
  evm::U256 left_;
};

// Dollars as a person writes them ("0.25") in millionths; kBadInput for anything else.
evm::U256 dollars(const std::string& text);

}  // namespace mxt::pay
