#include "evm/keystore.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "evm/keccak.h"

namespace mxt::evm {
namespace {

constexpr uint64_t kMostScrypt = 1u << 30, kMostRounds = 10'000'000;  // bytes, PBKDF2's rounds: what a machine can give
constexpr size_t kKeyBytes = 32;

const uint8_t* raw(const std::string& s) { return reinterpret_cast<const uint8_t*>(s.data()); }
uint8_t* raw(std::string& s) { return reinterpret_cast<uint8_t*>(s.data()); }

[[noreturn]] void damaged(const std::string& name) {
  fail_input("{}: is no key file of an EVM chain, or a damaged one: `mindxtrain key new FILE --kind evm` makes one",
             name);
}

std::string bytes_at(const Json& j, const char* key, const std::string& name) {
  if (!j.is_object() || !j.contains(key) || !j[key].is_string()) damaged(name);
  const auto text = j[key].get<std::string>();
  const auto b = from_hex(text.starts_with("0x") ? text : "0x" + text);
  if (!b) damaged(name);
  return *b;
}

uint64_t number_at(const Json& j, const char* key, const std::string& name) {
  if (!j.contains(key) || !j[key].is_number_unsigned()) damaged(name);
  return j[key].get<uint64_t>();
}

std::string string_at(const Json& j, const char* key) {
  return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "";
}

std::string scrypt(const std::string& words, const std::string& salt, uint64_t n, uint64_t r, uint64_t p) {
  std::string key(kKeyBytes, '\0');
  if (EVP_PBE_scrypt(words.data(), words.size(), raw(salt), salt.size(), n, r, p, 2 * kMostScrypt, raw(key),
                     key.size()) != 1)
    fail_missing("a keystore wants more memory to be opened than is here");
  return key;
}

std::string derived(const Json& crypto, const std::string& words, const std::string& name) {
  if (!crypto.contains("kdfparams") || !crypto["kdfparams"].is_object()) damaged(name);
  const Json& p = crypto["kdfparams"];
  const std::string salt = bytes_at(p, "salt", name), kdf = string_at(crypto, "kdf");
  if (number_at(p, "dklen", name) != kKeyBytes) damaged(name);
  if (kdf == "scrypt") {
    const uint64_t n = number_at(p, "n", name), r = number_at(p, "r", name), q = number_at(p, "p", name);
    if (n < 2 || (n & (n - 1)) != 0 || r == 0 || r > 64 || q == 0 || q > 16 || n > kMostScrypt / (128 * r))
      damaged(name);
    return scrypt(words, salt, n, r, q);
  }
  if (kdf != "pbkdf2" || string_at(p, "prf") != "hmac-sha256") damaged(name);
  const uint64_t rounds = number_at(p, "c", name);
  if (rounds == 0 || rounds > kMostRounds) damaged(name);
  std::string key(kKeyBytes, '\0');
  if (PKCS5_PBKDF2_HMAC(words.data(), static_cast<int>(words.size()), raw(salt), static_cast<int>(salt.size()),
                        static_cast<int>(rounds), EVP_sha256(), static_cast<int>(key.size()), raw(key)) != 1)
    damaged(name);
  return key;
}

// AES-128-CTR is its own inverse.
std::string aes_ctr(const std::string& key, const std::string& iv, const std::string& in) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> c(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  std::string out(in.size(), '\0');
  int n = 0;
  const bool ok = c && EVP_EncryptInit_ex(c.get(), EVP_aes_128_ctr(), nullptr, raw(key), raw(iv)) == 1 &&
                  EVP_EncryptUpdate(c.get(), raw(out), &n, raw(in), static_cast<int>(in.size())) == 1;
  MXT_ASSERT(ok && n == static_cast<int>(in.size()));
  return out;
}

std::string random_bytes(size_t n) {
  std::string s(n, '\0');
  if (RAND_bytes(raw(s), static_cast<int>(n)) != 1) fail_missing("no source of randomness on this machine");
  return s;
}

void wipe(std::string& s) { OPENSSL_cleanse(s.data(), s.size()); }

}  // namespace

Key open_keystore(const std::string& text, const std::string& name, const std::function<std::string()>& passphrase) {
  const Json j = Json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("version") || j["version"] != 3 || !j.contains("crypto")) damaged(name);
  const Json& crypto = j["crypto"];
  const std::string sealed = bytes_at(crypto, "ciphertext", name), mac = bytes_at(crypto, "mac", name);
  const std::string iv = crypto.contains("cipherparams") ? bytes_at(crypto["cipherparams"], "iv", name) : "";
  if (string_at(crypto, "cipher") != "aes-128-ctr" || iv.size() != 16 || sealed.size() != 32) damaged(name);
  std::string words = passphrase ? passphrase() : "";
  if (words.empty()) fail_missing("{}: is encrypted: set MINDXTRAIN_KEY_PASSPHRASE to its passphrase", name);
  std::string key = derived(crypto, words, name);
  wipe(words);
  if (bytes_of(keccak256(key.substr(16) + sealed)) != mac)
    fail_input("{}: the passphrase in MINDXTRAIN_KEY_PASSPHRASE is not that of this key", name);
  std::string secret = aes_ctr(key.substr(0, 16), iv, sealed);
  wipe(key);
  Key out(secret);
  wipe(secret);
  return out;
}

std::string make_keystore(const Key& key, const std::string& passphrase) {
  const std::string salt = random_bytes(32), iv = random_bytes(16);
  std::string derived_key = scrypt(passphrase, salt, 262144, 8, 1), secret = key.secret();
  const std::string sealed = aes_ctr(derived_key.substr(0, 16), iv, secret);
  wipe(secret);
  const auto digits = [](const std::string& b) { return hex(b).substr(2); };
  std::string id = digits(random_bytes(16));
  id[12] = '4';  // a random UUID
  id[16] = '8';
  for (const size_t at : {8, 13, 18, 23}) id.insert(at, "-");
  const OrderedJson j = {{"address", digits(bytes_of(key.address()))},
                         {"crypto",
                          {{"cipher", "aes-128-ctr"},
                           {"ciphertext", digits(sealed)},
                           {"cipherparams", {{"iv", digits(iv)}}},
                           {"kdf", "scrypt"},
                           {"kdfparams", {{"dklen", 32}, {"n", 262144}, {"p", 1}, {"r", 8}, {"salt", digits(salt)}}},
                           {"mac", digits(bytes_of(keccak256(derived_key.substr(16) + sealed)))}}},
                         {"id", id},
                         {"version", 3}};
  wipe(derived_key);
  return j.dump(2) + "\n";
}

}  // namespace mxt::evm
