// Signatures: Ed25519 in a DSSE envelope (https://github.com/secure-systems-lab/dsse), what in-toto tools read.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mxt::provenance {

inline constexpr const char* kPayloadType = "application/vnd.in-toto+json";

// A public key is written "ed25519:" and 44 characters of base64.
struct SigningKey {
  std::array<uint8_t, 64> secret{};  // libsodium's form: seed, then public key
  std::string public_key;
};

// Where the passphrase of an encrypted key comes from; "" = there is none.
using Passphrase = std::function<std::string()>;
inline constexpr const char* kPassphraseVariable = "MINDXTRAIN_KEY_PASSPHRASE";  // what `apps` reads it from

// Writes a new key to `path` (readable by its owner alone, never over another file) and the public key to `path`.pub.
// With a passphrase the file is a keystore: the seed in a secretbox (XSalsa20-Poly1305) under Argon2id of it. Returns
// the public key. Errors (kBadInput): either file exists.
std::string make_key(const std::string& path, std::string_view passphrase = "");
// kMissing where there is none, or a keystore's passphrase is; kBadInput where it is none, the passphrase is another,
// or others may read it.
SigningKey load_key(const std::string& path, const Passphrase& passphrase = {});
// Takes a public key, or a file that holds one (NAME.pub); kBadInput otherwise.
std::string load_public_key(const std::string& key_or_path);

// The envelope as JSON text over these bytes.
std::string seal(std::string_view payload, const SigningKey& key);
// DSSE's pre-authentication encoding of in-toto bytes: what is signed.
std::string pre_authentication(std::string_view payload);
// "" where `envelope` is a valid signature of exactly these bytes by this key, else what is wrong. Base64 may be the
// standard one or URL-safe; signatures by other keys are passed over; a keyid is a hint.
std::string check_seal(std::string_view envelope, std::string_view payload, const std::string& public_key);

// A new file that its owner alone can read, from its first moment on. kBadInput where there is one.
void write_secret(const std::string& path, std::string_view text);

}  // namespace mxt::provenance
