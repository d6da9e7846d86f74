// An asset of Algorand (ASA) that stands for a run: read from algod and compared, never made.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

inline constexpr const char* kAlgodVariable = "ALGOD_URL";  // instead of the recipe's address
inline constexpr const char* kAlgodToken = "ALGOD_TOKEN";   // X-Algo-API-Token, where the node wants one

// Settings.asa_id must be there (kMissing). Result: {"asset", "name", "unit", "creator"}. kVerifyFailed where the
// asset's metadata hash is not the SHA-256 of manifest.json.
std::unique_ptr<Step> asset_step(const config::AlgorandPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
