// A folder's block, or its HAMT where the block would be too large.
#pragma once

#include <vector>

#include "publish/ipfs/node.h"

namespace mxt::publish {

// Names are distinct and not empty. Errors (kBadInput): names that agree in 64 bits of their hash.
DagLink make_folder(std::vector<DagLink> entries, const UnixFsProfile& profile, const BlockSink& sink);

}  // namespace mxt::publish
