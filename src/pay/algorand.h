// x402's `exact` on Algorand: the client signs the transfer itself and pays its fee, so that nothing of ours is signed
// or spent; what is left is to look at it, send it and see it confirmed.
#pragma once

#include <functional>
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

// "" where the group pays `amount` on these terms, as far as can be seen without the chain; else the SDK's word.
std::string check_algorand(const AlgorandGroup& g, const AlgorandTerms& t, const evm::U256& amount);

// A group is sent as often as it takes: the same transaction is confirmed once at most.
class AlgorandSettler final : public Settling {
 public:
  // Takes up what the store says was sent and not seen confirmed.
  AlgorandSettler(algorand::Node& node, Store& store, SettleSettings settings = {});
  ~AlgorandSettler() override;
  void submit(Record record, const evm::U256& amount, std::function<void(Settlement)> done) override;
  void stop() override;

 private:
  struct Job;
  void run();
  bool send(Job& job);
  bool look(Job& job);
  void finish(Job& job, const std::string& error);

  algorand::Node& node_;
  Store& store_;
  const SettleSettings settings_;
  Inbox<Job> inbox_;
  std::thread thread_;
};

}  // namespace mxt::pay
