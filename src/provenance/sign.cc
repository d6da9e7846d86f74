#include "provenance/sign.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace mxt::provenance {
namespace {

constexpr std::string_view kPrefix = "ed25519:";
constexpr const char* kKeyType = "mindxtrain-ed25519-v1";
constexpr const char* kKeystoreType = "mindxtrain-ed25519-keystore-v1";

void start_sodium() {
  if (sodium_init() < 0) fail_missing("libsodium cannot start: no source of randomness on this machine");
}

std::string_view chars(const uint8_t* data, size_t bytes) { return {reinterpret_cast<const char*>(data), bytes}; }
const uint8_t* bytes_of(std::string_view s) { return reinterpret_cast<const uint8_t*>(s.data()); }

std::string string_at(const Json& j, const char* name) {
  return j.is_object() && j.contains(name) && j[name].is_string() ? j[name].get<std::string>() : std::string();
}

// The bytes of a base64 field, where there are exactly so many.
std::optional<std::string> base64_at(const Json& j, const char* name, size_t bytes) {
  auto out = from_base64(string_at(j, name));
  return out && out->size() == bytes ? out : std::nullopt;
}

std::optional<std::string> public_bytes(std::string_view key) {
  if (!key.starts_with(kPrefix)) return std::nullopt;
  auto out = from_base64(key.substr(kPrefix.size()));
  return out && out->size() == crypto_sign_PUBLICKEYBYTES ? out : std::nullopt;
}

// A keystore's own figures, within what a machine can give.
constexpr uint64_t kMostOperations = 16, kMostMemory = 1u << 30;

std::string box_key(std::string_view passphrase, std::string_view salt, uint64_t operations, uint64_t memory) {
  std::string key(crypto_secretbox_KEYBYTES, '\0');
  if (crypto_pwhash(reinterpret_cast<uint8_t*>(key.data()), key.size(), passphrase.data(), passphrase.size(),
                    bytes_of(salt), operations, memory, crypto_pwhash_ALG_ARGON2ID13) != 0)
    fail_missing("a keystore wants {} of memory to be opened: free some", human_bytes(memory));
  return key;
}

OrderedJson sealed_seed(std::string_view seed, std::string_view passphrase) {
  std::string salt(crypto_pwhash_SALTBYTES, '\0'), nonce(crypto_secretbox_NONCEBYTES, '\0'),
      box(seed.size() + crypto_secretbox_MACBYTES, '\0');
  randombytes_buf(salt.data(), salt.size());
  randombytes_buf(nonce.data(), nonce.size());
  const uint64_t operations = crypto_pwhash_OPSLIMIT_MODERATE, memory = crypto_pwhash_MEMLIMIT_MODERATE;
  std::string key = box_key(passphrase, salt, operations, memory);
  crypto_secretbox_easy(reinterpret_cast<uint8_t*>(box.data()), bytes_of(seed), seed.size(), bytes_of(nonce),
                        bytes_of(key));
  sodium_memzero(key.data(), key.size());
  return {{"kdf", "argon2id13"},     {"operations", operations},  {"memory", memory},
          {"salt", to_base64(salt)}, {"nonce", to_base64(nonce)}, {"box", to_base64(box)}};
}

std::string opened_seed(const Json& j, const std::string& path, const Passphrase& passphrase) {
  const auto salt = base64_at(j, "salt", crypto_pwhash_SALTBYTES),
             nonce = base64_at(j, "nonce", crypto_secretbox_NONCEBYTES),
             box = base64_at(j, "box", crypto_sign_SEEDBYTES + crypto_secretbox_MACBYTES);
  const auto number = [&](const char* name) {
    return j.contains(name) && j[name].is_number_unsigned() ? j[name].get<uint64_t>() : 0;
  };
  const uint64_t operations = number("operations"), memory = number("memory");
  if (string_at(j, "kdf") != "argon2id13" || !salt || !nonce || !box || operations < crypto_pwhash_OPSLIMIT_MIN ||
      operations > kMostOperations || memory < crypto_pwhash_MEMLIMIT_MIN || memory > kMostMemory)
    fail_input("{}: is a damaged keystore: restore it", path);
  std::string words = passphrase ? passphrase() : "";
  if (words.empty()) fail_missing("{}: is encrypted: set {} to its passphrase", path, kPassphraseVariable);
  std::string key = box_key(words, *salt, operations, memory), seed(crypto_sign_SEEDBYTES, '\0');
  sodium_memzero(words.data(), words.size());
  const bool open = crypto_secretbox_open_easy(reinterpret_cast<uint8_t*>(seed.data()), bytes_of(*box), box->size(),
                                               bytes_of(*nonce), bytes_of(key)) == 0;
  sodium_memzero(key.data(), key.size());
  if (!open) fail_input("{}: the passphrase in {} is not that of this key", path, kPassphraseVariable);
  return seed;
}

}  // namespace

std::string pre_authentication(std::string_view payload) {
  const std::string_view type = kPayloadType;
  return fmt::format("DSSEv1 {} {} {} ", type.size(), type, payload.size()).append(payload);
}

void write_secret(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST)
    fail_input("{}: exists already: choose another name (a key is never overwritten)", path);
  if (fd < 0) fail_input("{}: cannot be written: {}", path, std::strerror(errno));
  const bool ok = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  close(fd);
  if (!ok) {
    unlink(path.c_str());
    fail_input("{}: cannot be written: {}", path, std::strerror(errno));
  }
}

std::string make_key(const std::string& path, std::string_view passphrase) {
  start_sodium();
  if (fs::exists(fs::symlink_status(path + ".pub")))
    fail_input("{}.pub: exists already: choose another name (a key is never overwritten)", path);
  std::array<uint8_t, crypto_sign_PUBLICKEYBYTES> pub{};
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret{};
  crypto_sign_keypair(pub.data(), secret.data());
  const std::string key = std::string(kPrefix) + to_base64(chars(pub.data(), pub.size()));
  const std::string_view seed = chars(secret.data(), crypto_sign_SEEDBYTES);
  OrderedJson j = {{"type", passphrase.empty() ? kKeyType : kKeystoreType}, {"public", key}};
  if (passphrase.empty())
    j["seed"] = to_base64(seed);
  else
    j.update(sealed_seed(seed, passphrase));
  sodium_memzero(secret.data(), secret.size());
  write_secret(path, j.dump(2) + "\n");
  write_file_atomic(path + ".pub", key + "\n");
  return key;
}

SigningKey load_key(const std::string& path, const Passphrase& passphrase) {
  start_sodium();
  struct stat st{};
  if (stat(path.c_str(), &st) != 0)
    fail_missing("{}: no signing key there: make one with `mindxtrain receipt keygen {}`", path, path);
  if (st.st_mode & 077) fail_input("{}: others may read this key: `chmod 600 {}`", path, path);
  if (st.st_size > 4096) fail_input("{}: is no signing key: make one with `mindxtrain receipt keygen`", path);
  const std::string text = read_file(path);
  if (text.starts_with("-----BEGIN"))
    fail_input(
        "{}: is a key in PEM, as model signatures take it; manifests are signed by Ed25519: make a key with "
        "`mindxtrain key new FILE`",
        path);
  const Json j = parse_json(text, path);
  std::optional<std::string> seed;
  if (string_at(j, "type") == kKeystoreType)
    seed = opened_seed(j, path, passphrase);
  else if (string_at(j, "type") == kKeyType)
    seed = base64_at(j, "seed", crypto_sign_SEEDBYTES);
  if (!seed) fail_input("{}: is no signing key: make one with `mindxtrain receipt keygen`", path);
  SigningKey key;
  std::array<uint8_t, crypto_sign_PUBLICKEYBYTES> pub{};
  crypto_sign_seed_keypair(pub.data(), key.secret.data(), bytes_of(*seed));
  sodium_memzero(seed->data(), seed->size());
  key.public_key = std::string(kPrefix) + to_base64(chars(pub.data(), pub.size()));
  if (key.public_key != string_at(j, "public"))
    fail_input("{}: its public and secret halves do not belong together", path);
  return key;
}

std::string load_public_key(const std::string& key_or_path) {
  if (public_bytes(key_or_path)) return key_or_path;
  const std::string text(trim(read_file(key_or_path).substr(0, 256)));
  if (!public_bytes(text)) fail_input("{}: is no public key (ed25519:…)", key_or_path);
  return text;
}

std::string seal(std::string_view payload, const SigningKey& key) {
  start_sodium();
  const std::string signed_text = pre_authentication(payload);
  std::array<uint8_t, crypto_sign_BYTES> sig{};
  crypto_sign_detached(sig.data(), nullptr, bytes_of(signed_text), signed_text.size(), key.secret.data());
  const OrderedJson j = {
      {"payloadType", kPayloadType},
      {"payload", to_base64(payload)},
      {"signatures", {{{"keyid", key.public_key}, {"sig", to_base64(chars(sig.data(), sig.size()))}}}}};
  return j.dump(2) + "\n";
}

std::string check_seal(std::string_view envelope, std::string_view payload, const std::string& public_key) {
  start_sodium();
  Json j;
  try {
    j = parse_json(envelope, "envelope");
  } catch (const Error& e) {
    return e.what();
  }
  if (string_at(j, "payloadType") != kPayloadType) return fmt::format("payloadType is not {}", kPayloadType);
  const auto bytes = from_base64(string_at(j, "payload"));
  if (!bytes) return "payload is no base64";
  if (*bytes != payload)
    return "payload is not this manifest: it was signed before it was changed, or belongs to another";
  const auto pub = public_bytes(public_key);
  if (!pub) return fmt::format("{} is no public key", public_key);
  if (!j.contains("signatures") || !j["signatures"].is_array()) return "signatures are missing";
  const std::string signed_text = pre_authentication(payload);
  std::string why = fmt::format("no signature by {}", public_key);
  for (const Json& s : j["signatures"]) {
    const auto sig = base64_at(s, "sig", crypto_sign_BYTES);
    if (sig &&
        crypto_sign_verify_detached(bytes_of(*sig), bytes_of(signed_text), signed_text.size(), bytes_of(*pub)) == 0)
      return "";
    if (string_at(s, "keyid") == public_key) why = fmt::format("the signature by {} does not hold", public_key);
  }
  return why;
}

}  // namespace mxt::provenance
