// What the steps on an EVM chain have in common.
#pragma once

#include <optional>
#include <string>

#include "evm/rpc.h"
#include "evm/send.h"
#include "publish/steps.h"

namespace mxt::publish {

class EvmChain {
 public:
  // kBadInput where the settings' URL is none.
  EvmChain(const config::EvmPublish& settings, const Surroundings& around);

  evm::Rpc& rpc() { return rpc_; }
  // Asks for the chain's id, and that the contract is there, before anything is signed.
  void require(const evm::Address& contract, const std::string& what);
  // The settings' key: kMissing names its variable.
  evm::Key key() const;
  // Sends a call, waits, and keeps the attempts under `name` of the step's state. kBadInput where it failed.
  evm::Sent send(const StepContext& c, const std::string& name, const evm::Address& to, const std::string& data);

 private:
  const config::EvmPublish& settings_;
  const Surroundings& around_;
  evm::Rpc rpc_;
};

// Before it nothing of a run can stand on a chain, whose clock may differ: seconds since 1970; 0 where the manifest
// does not say when the run was finished.
int64_t earliest_trace(const Json& manifest);

// "eip155:8453:0x…".
std::string chain_target(const config::EvmPublish& settings, const evm::Address& contract);

}  // namespace mxt::publish
