// Keys of Ed25519 (provenance/sign.h) where they sign transactions of Algorand's.
#pragma once

#include <string>

namespace mxt::app {

// Whether a file says that it is such a key; all others are read as keys of EVM chains.
bool is_ed25519_key(const std::string& path);
// 32 bytes. Errors: as of provenance::load_key.
std::string algorand_seed(const std::string& path);

}  // namespace mxt::app
