// A transaction of type 2 (EIP-1559), written and signed.
#pragma once

#include <string>

#include "evm/key.h"
#include "evm/types.h"

namespace mxt::evm {

struct Transaction {
  uint64_t chain_id = 0, nonce = 0, gas = 0;
  U256 max_priority_fee, max_fee;  // wei a unit of gas
  std::optional<Address> to;       // absent: a contract is made
  U256 value;                      // wei
  std::string data;
};

struct SignedTransaction {
  std::string raw;
  Digest hash{};
};
SignedTransaction sign(const Transaction& t, const Key& key);

}  // namespace mxt::evm
