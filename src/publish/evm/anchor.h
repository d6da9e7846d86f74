// The anchor of a run in mindxtrain_registry (contracts/src): who published it, and when at the latest it existed.
//
// run id = the manifest's own BLAKE3; digest = SHA-256 of manifest.json's bytes; CID = of the published folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evm/rpc.h"
#include "provenance/manifest.h"
#include "publish/steps.h"

namespace mxt::publish {

struct Entry {
  Digest digest{};
  uint64_t time = 0;  // of the block, seconds since 1970
  std::string cid;
};
// Absent where `publisher` has anchored no such run.
std::optional<Entry> read_entry(evm::Rpc& rpc, const evm::Address& registry, const evm::Address& publisher,
                                const Digest& run_id);

// Settings.registry must be there. Result: {"chain_id", "registry", "publisher", "run_id", "digest", "cid", "time",
// "tx"?, "block"?}; without a transaction where the entry was there already. A run that is anchored with another digest
// or CID is kVerifyFailed.
std::unique_ptr<Step> anchor_step(const config::EvmPublish& settings, const Run& run, const Surroundings& around);

struct AnchorCheck {
  std::vector<provenance::Finding> findings;  // empty: it holds
  std::vector<std::string> lines;             // what holds, for people
};
// Of a run's folder or a published copy, whose manifest has been verified. `publisher` absent: all who anchored it are
// named, at least one must hold. Errors (kBadInput): the node.
AnchorCheck check_anchor(const std::string& manifest_path, evm::Rpc& rpc, const evm::Address& registry,
                         const std::optional<evm::Address>& publisher, StopFlag stop = nullptr);

}  // namespace mxt::publish
