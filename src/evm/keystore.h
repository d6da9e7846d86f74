// Keystores as geth, Foundry and wallets write them: Web3 Secret Storage, version 3 (a key under scrypt or PBKDF2 and
// AES-128-CTR, with a Keccak MAC).
#pragma once

#include <functional>
#include <string>

#include "evm/key.h"

namespace mxt::evm {

// Errors: kBadInput for no keystore, a damaged one or another passphrase; kMissing where there is no passphrase.
Key open_keystore(const std::string& text, const std::string& name, const std::function<std::string()>& passphrase);
// JSON text, scrypt with geth's parameters (n 262144, r 8, p 1: 256 MiB).
std::string make_keystore(const Key& key, const std::string& passphrase);

}  // namespace mxt::evm
