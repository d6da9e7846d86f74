// Signatures: Ed25519 in a DSSE envelope (https://github.com/secure-systems-lab/dsse), what in-toto tools read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mxt::provenance {

inline constexpr const char* kPayloadType = "application/vnd.in-toto+json";

// A public key is written "ed25519:" and 44 characters of base64.
struct SigningKey {
  std::array<uint8_t, 64> secret{};  // libsodium's form: seed, then public key
  std::string public_key;
};

// Writes a new key to `path` (readable by its owner alone, never over another file) and the public key to `path`.pub.
// Returns the public key.
std::string make_key(const std::string& path);
// kMissing where there is none; kBadInput where it is none or others may read it.
SigningKey load_key(const std::string& path);
// Takes a public key, or a file that holds one (NAME.pub); kBadInput otherwise.
std::string load_public_key(const std::string& key_or_path);

// The envelope as JSON text over these bytes.
std::string seal(std::string_view payload, const SigningKey& key);
// "" where `envelope` is a valid signature of exactly these bytes by this key, else what is wrong.
std::string check_seal(std::string_view envelope, std::string_view payload, const std::string& public_key);

}  // namespace mxt::provenance
