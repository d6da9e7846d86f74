// An agent of ERC-8004 asks a validator for its opinion of a run (the registry's validationRequest). Which one is asked
// is not of the run: MINDXTRAIN_ERC8004_VALIDATOR names it when the run is published.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

inline constexpr const char* kValidatorVariable = "MINDXTRAIN_ERC8004_VALIDATOR";

// Settings.validation_registry must be there. The request's hash is the Keccak-256 of manifest.json, its URI where that
// file was published (IPFS, else the Hub). Result: {"registry", "validator", "agent_id", "request_hash", "tx"?,
// "response"?: 0 … 100 once there is one}. A request that stands is not sent again; one of another agent or to another
// validator under the same hash is kVerifyFailed.
std::unique_ptr<Step> validation_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
