#include "evm/keccak.h"

#include <crypto++/keccak.h>

namespace mxt::evm {

Digest keccak256(std::string_view bytes) {
  Digest out{};
  CryptoPP::Keccak_256 hash;
  hash.CalculateDigest(out.data(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return out;
}

}  // namespace mxt::evm
