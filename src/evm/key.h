// Keys on secp256k1 and their signatures. Nonces are RFC 6979's, so that the same message gives the same signature.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "evm/types.h"

namespace mxt::evm {

struct Signature {
  Digest r{}, s{};            // s in the lower half of the order (EIP-2)
  int y_parity = 0;           // 0 or 1
  std::string bytes() const;  // r, s, 27 + y_parity: 65 bytes
};

class Key {
 public:
  // Errors (kBadInput): not 32 bytes, or no number of the group.
  explicit Key(std::string_view secret);
  ~Key();
  Key(const Key& o) = default;
  Key& operator=(const Key&) = default;
  const Address& address() const { return address_; }
  Signature sign(const Digest& hash) const;
  std::string secret() const;  // for who writes it to a key file

 private:
  Digest secret_{};
  Address address_{};
};

Key new_key();
// Who signed. Empty where it is no signature, or s lies in the upper half.
std::optional<Address> recover(const Digest& hash, const Signature& s);
// Of 65 bytes r, s, v with v of 0, 1, 27 or 28.
std::optional<Signature> parse_signature(std::string_view bytes);

// A setting's key: 64 hexadecimal digits, with 0x or without; else the name of a file that holds them or a keystore
// (keystore.h), whose passphrase is asked for. `name` for messages, never the value. kMissing where it is empty.
Key load_key(const std::string& value, const std::string& name, const std::function<std::string()>& passphrase);

}  // namespace mxt::evm
