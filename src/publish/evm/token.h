// A token of ERC-7857 that stands for a run: read and compared, never minted or moved. The standard is a draft of which
// two generations are in use; both are understood (intelligentDataOf of 0G's, dataHashesOf of the ERC's text).
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

// Settings.inft and inft_token must be there. Result: {"contract", "token", "digest"}. kVerifyFailed where none of the
// token's hashes is the SHA-256 of manifest.json; kBadInput where there is no such token.
std::unique_ptr<Step> token_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
