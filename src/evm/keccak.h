// Keccak-256, as Ethereum uses it: SHA-3 before its padding was changed.
#pragma once

#include <string_view>

#include "base/hash.h"

namespace mxt::evm {

Digest keccak256(std::string_view bytes);

}  // namespace mxt::evm
