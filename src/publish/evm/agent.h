// A run as an agent of ERC-8004's identity registry (github.com/erc-8004/erc-8004-contracts): registered, or an agent
// that exists, with the manifest's digest in its metadata. Nobody gives feedback on an agent of his own, so none is
// given here.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "evm/types.h"
#include "publish/steps.h"

namespace mxt::publish {

inline constexpr const char* kManifestKey = "mindxtrain.manifest";  // metadata: SHA-256 of manifest.json, 32 bytes

// Settings.identity_registry must be there. Result: {"chain_id", "registry", "agent_id", "digest", "tx"?}. Metadata
// that is there already is not sent again; a second registration with the same file is recognised by the registry's
// events.
std::unique_ptr<Step> agent_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

// The registration file of EIP-8004. Its services: the agent's domain (publish/evm/domain.h) and the run on the Hub,
// where they are known.
OrderedJson registration_file(const StepContext& c);

// The agent, for the steps that follow: the settings', else the one that this step has given; absent before that.
std::optional<evm::U256> agent_of(const StepContext& c, const config::EvmPublish& settings);

}  // namespace mxt::publish
