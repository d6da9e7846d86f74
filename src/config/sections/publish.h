// Section `publish`. The section absent = the stage is off; a destination absent = nothing is sent there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/enums.h"

namespace mxt::config {

struct HfPublish {
  std::string repo;
  bool is_private = false;  // YAML: private
};
struct LighthousePublish {
  std::string api_key_env = "LIGHTHOUSE_API_KEY";
};
struct IpfsPublish {
  std::string api_url = "http://127.0.0.1:5001";  // Kubo's API
  std::string profile = "kubo-v1";                // how files are cut: publish/ipfs/profile.h
  bool car = false;                               // blocks are sent instead of files
};
struct MindxPublish {
  std::string api_url = "https://mindx.pythai.net/v1/agents";
  bool register_as_capability = true;
};
struct AgenticPlacePublish {
  std::string api_url = "https://agenticplace.pythai.net/v1/listings";
  std::string chain_map_url = "https://agenticplace.pythai.net/allchain.html";
};
struct BankonPublish {
  std::string ens_parent = "bankon.eth";
  std::string subname;
};
// Contracts on one EVM chain; an address that is not given is a step that is not done.
struct EvmPublish {
  std::string rpc_url;
  int64_t chain_id = 8453;  // Base
  std::string key_env = "MINDXTRAIN_EVM_KEY";
  int64_t confirmations = 3;  // blocks that hold or follow a transaction before it counts
  double max_fee_gwei = 100;  // that a unit of gas may cost
  std::optional<std::string> registry, identity_registry, reputation_registry, validation_registry, inft, name_wrapper,
      resolver;
  std::optional<int64_t> agent_id, inft_token;
};
struct AlgorandPublish {
  std::string algod_url;
  std::string key_env = "MINDXTRAIN_ALGORAND_KEY";
  std::optional<int64_t> asa_id;
};
struct X402 {
  X402Network network = X402Network::kAlgorand;
  std::string asset = "USDC";
  ReceiverVia receiver_via = ReceiverVia::kParsecWallet;
  double price_per_1k_tokens = 0.0002;
  std::optional<std::string> pay_to, rpc_url, facilitator_url, store;
  std::string key_env = "MINDXTRAIN_EVM_KEY";  // who settles, and pays the gas
  std::vector<X402Scheme> schemes = {X402Scheme::kExact};
};
struct Billing {
  X402 x402;
};

struct Publish {
  bool enabled = true;
  std::optional<HfPublish> hf;
  std::optional<LighthousePublish> lighthouse;
  std::optional<IpfsPublish> ipfs;
  std::optional<MindxPublish> mindx;
  std::optional<AgenticPlacePublish> agenticplace;
  std::optional<BankonPublish> bankon;
  std::optional<EvmPublish> evm;
  std::optional<AlgorandPublish> algorand;
  std::optional<Billing> billing;
};

}  // namespace mxt::config
