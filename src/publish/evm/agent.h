// A run as an agent of ERC-8004's identity registry (github.com/erc-8004/erc-8004-contracts): registered, or an agent
// that exists, with the manifest's digest in its metadata. Nobody gives feedback on an agent of his own, so none is
// given here.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

inline constexpr const char* kManifestKey = "mindxtrain.manifest";  // metadata: SHA-256 of manifest.json, 32 bytes

// Settings.identity_registry must be there. Result: {"chain_id", "registry", "agent_id", "digest", "tx"?}. Metadata
// that is there already is not sent again; a second registration with the same file is recognised by the registry's
// events.
std::unique_ptr<Step> agent_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

// The registration file of EIP-8004; `hub_url` "" = it is not on the Hub.
OrderedJson registration_file(const Run& run, const std::string& hub_url);

}  // namespace mxt::publish
