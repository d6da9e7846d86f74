#include "evm/key.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <secp256k1.h>
#include <secp256k1_recovery.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "evm/keccak.h"
#include "evm/keystore.h"

namespace mxt::evm {
namespace {

constexpr uintmax_t kMaxKeyFile = 64 << 10;

// Blinded once, so that what a signature's time and power tell is not the key.
const secp256k1_context* context() {
  static const secp256k1_context* const kContext = [] {
    secp256k1_context* c = secp256k1_context_create(SECP256K1_CONTEXT_SIGN | SECP256K1_CONTEXT_VERIFY);
    Digest seed{};
    if (RAND_bytes(seed.data(), static_cast<int>(seed.size())) != 1 || !secp256k1_context_randomize(c, seed.data()))
      fail_missing("no source of randomness on this machine");
    return c;
  }();
  return kContext;
}

Address address_of(const secp256k1_pubkey& pub) {
  std::array<uint8_t, 65> point{};
  size_t size = point.size();
  secp256k1_ec_pubkey_serialize(context(), point.data(), &size, &pub, SECP256K1_EC_UNCOMPRESSED);
  const Digest d = keccak256({reinterpret_cast<const char*>(point.data()) + 1, 64});
  Address a{};
  std::copy(d.begin() + 12, d.end(), a.begin());
  return a;
}

// The order of the group, halved (SEC 2).
const U256& half_order() {
  static const U256 kHalf("0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0");
  return kHalf;
}

std::optional<std::string> hex_secret(std::string_view t) {
  t = trim(t);
  const auto b = from_hex(t.starts_with("0x") ? std::string(t) : "0x" + std::string(t));
  return b && b->size() == 32 ? b : std::nullopt;
}

}  // namespace

std::string Signature::bytes() const {
  return bytes_of(r) + bytes_of(s) + std::string(1, static_cast<char>(27 + y_parity));
}

Key::Key(std::string_view secret) {
  const auto d = digest_of(secret);
  secp256k1_pubkey pub;
  if (!d || !secp256k1_ec_pubkey_create(context(), &pub, d->data())) fail_input("this is no secp256k1 key");
  secret_ = *d;
  address_ = address_of(pub);
}

Key::~Key() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

std::string Key::secret() const { return bytes_of(secret_); }

Signature Key::sign(const Digest& hash) const {
  secp256k1_ecdsa_recoverable_signature raw;
  const int made = secp256k1_ecdsa_sign_recoverable(context(), &raw, hash.data(), secret_.data(), nullptr, nullptr);
  MXT_ASSERT(made);
  std::array<uint8_t, 64> compact{};
  Signature out;
  secp256k1_ecdsa_recoverable_signature_serialize_compact(context(), compact.data(), &out.y_parity, &raw);
  std::copy_n(compact.begin(), 32, out.r.begin());
  std::copy_n(compact.begin() + 32, 32, out.s.begin());
  return out;
}

Key new_key() {
  std::string secret(32, '\0');
  for (;;) {
    if (RAND_bytes(reinterpret_cast<uint8_t*>(secret.data()), 32) != 1)
      fail_missing("no source of randomness on this machine");
    if (secp256k1_ec_seckey_verify(context(), reinterpret_cast<const uint8_t*>(secret.data()))) break;
  }
  Key key(secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

std::optional<Address> recover(const Digest& hash, const Signature& s) {
  if (number_of(bytes_of(s.s)) > half_order()) return std::nullopt;
  const std::string compact = bytes_of(s.r) + bytes_of(s.s);
  secp256k1_ecdsa_recoverable_signature raw;
  secp256k1_pubkey pub;
  if (!secp256k1_ecdsa_recoverable_signature_parse_compact(
          context(), &raw, reinterpret_cast<const uint8_t*>(compact.data()), s.y_parity) ||
      !secp256k1_ecdsa_recover(context(), &pub, &raw, hash.data()))
    return std::nullopt;
  return address_of(pub);
}

std::optional<Signature> parse_signature(std::string_view b) {
  if (b.size() != 65) return std::nullopt;
  Signature s;
  s.r = *digest_of(b.substr(0, 32));
  s.s = *digest_of(b.substr(32, 32));
  const int v = static_cast<uint8_t>(b[64]);
  if (v > 1 && v != 27 && v != 28) return std::nullopt;
  s.y_parity = v % 27;
  return s;
}

Key load_key(const std::string& value, const std::string& name, const std::function<std::string()>& passphrase) {
  if (value.empty())
    fail_missing("{}: is not set: the private key, or the name of a key file (`mindxtrain key new FILE --kind evm`)",
                 name);
  const auto key_of = [](const std::string& secret, const std::string& where) {
    if (!secp256k1_ec_seckey_verify(context(), reinterpret_cast<const uint8_t*>(secret.data())))
      fail_input(
          "{}: is no key of secp256k1 (zero, or beyond its order): `mindxtrain key new FILE --kind evm` makes one",
          where);
    return Key(secret);
  };
  if (const auto secret = hex_secret(value)) return key_of(*secret, name);
  struct stat st{};
  if (stat(value.c_str(), &st) != 0 || !S_ISREG(st.st_mode))
    fail_missing("{}: is neither 64 hexadecimal digits nor the name of a key file", name);
  if (st.st_mode & 077) fail_input("{}: others may read this key: `chmod 600 {}`", value, value);
  if (static_cast<uintmax_t>(st.st_size) > kMaxKeyFile) fail_input("{}: is no key file", value);
  const std::string text = read_file(value);
  if (const auto secret = hex_secret(text)) return key_of(*secret, value);
  return open_keystore(text, value, passphrase);
}

}  // namespace mxt::evm
