// x402's `exact` on Algorand: the client signs the transfer itself; what is left is to look at it, send it and see it
// confirmed. Its fee is the client's, or ours where we say so: then a transaction of the group pays it, which holds
// nothing else, and which we sign.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "algorand/node.h"
#include "pay/inbox.h"
#include "pay/payment.h"
#include "pay/settle.h"

namespace mxt::pay {

// `asset`: "USDC", which the main and the test network have, or an id. Name and decimals are asked from the node into
// `token`. kBadInput where the asset is none.
AlgorandTerms read_algorand(algorand::Node& node, const std::string& asset, const std::string& pay_to, Token& token);

// USDC's asset on the main and the test network; empty elsewhere. `genesis_hash`: 32 bytes.
std::optional<uint64_t> usdc_on(const std::string& genesis_hash);
// CAIP-2: "algorand:" and 32 letters of the hash in base64.
std::string algorand_network(const std::string& genesis_hash);

// "" where the group pays `amount` on these terms, as far as can be seen without the chain; else the SDK's word.
std::string check_algorand(const AlgorandGroup& g, const AlgorandTerms& t, const evm::U256& amount);

// A group is sent as often as it takes: the same transaction is confirmed once at most.
class AlgorandSettler final : public Settling {
 public:
  // Takes up what the store says was sent and not seen confirmed. `fee_seed`: of the key that pays fees (the terms'
  // fee_payer), "" = none.
  AlgorandSettler(algorand::Node& node, Store& store, std::string fee_seed, SettleSettings settings = {});
  ~AlgorandSettler() override;
  void submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) override;
  void stop() override;

 private:
  struct Job;
  std::string signed_bytes(const AlgorandGroup& g) const;
  Job job_of(Record record, std::function<void(Settlement)> done) const;
  void run();
  void send(Job& job);
  bool look(Job& job);
  void finish(Job& job, const std::string& error);

  algorand::Node& node_;
  Store& store_;
  const std::string fee_seed_;
  const SettleSettings settings_;
  Inbox<Job> inbox_;
  std::thread thread_;
};

}  // namespace mxt::pay
