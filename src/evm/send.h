// One transaction, from its nonce to the depth that was asked for: through kills, lost answers, rising prices and
// reorgs.
//
// Every attempt has one nonce, and is kept before it is sent, so no more than one of them is ever mined. What the
// caller keeps: {"from", "nonce", "attempts": [{"hash", "raw", "max_fee", "tip"}]}; of another account it is not used.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "base/stop.h"
#include "evm/key.h"
#include "evm/rpc.h"
#include "evm/transaction.h"

namespace mxt::evm {

struct SendSettings {
  uint64_t chain_id = 0;
  uint64_t confirmations = 1;  // blocks that hold or follow it: 1 = it is mined
  U256 most_fee = 0;           // wei a unit of gas that an attempt may offer; 0 = no limit
  double poll_seconds = 1;
  double patience_seconds = 300;  // then kBadInput: what is kept goes on
  // An attempt that the base fee has outgrown is replaced after these; so is one without a receipt whose nonce is used.
  double replace_seconds = 30;
};

struct Sent {
  Digest hash{};
  Receipt receipt;
};

// What is mined may have failed: receipt.succeeded. Errors: kBadInput where the node refuses, the price is above
// most_fee, or patience is over; all is kept.
Sent send_transaction(Rpc& rpc, const Key& key, const std::optional<Address>& to, const std::string& data,
                      const SendSettings& settings, Json state, const std::function<void(const Json&)>& keep,
                      StopFlag stop = nullptr);

}  // namespace mxt::evm
