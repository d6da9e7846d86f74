#include "provenance/sign.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace mxt::provenance {
namespace {

constexpr std::string_view kPrefix = "ed25519:";
constexpr const char* kKeyType = "mindxtrain-ed25519-v1";

void start_sodium() {
  if (sodium_init() < 0) fail_missing("libsodium cannot start: no source of randomness on this machine");
}

std::string to_base64(const uint8_t* data, size_t bytes) {
  std::string out(sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(out.data(), out.size(), data, bytes, sodium_base64_VARIANT_ORIGINAL);
  out.pop_back();  // its NUL
  return out;
}

// False where the text is no base64 of exactly or at most so many bytes.
bool from_base64(std::string_view text, std::vector<uint8_t>* out, size_t at_most) {
  out->resize(std::min(at_most, text.size() / 4 * 3 + 3));
  size_t bytes = 0;
  const char* end = nullptr;
  if (sodium_base642bin(out->data(), out->size(), text.data(), text.size(), nullptr, &bytes, &end,
                        sodium_base64_VARIANT_ORIGINAL) != 0 ||
      end != text.data() + text.size())
    return false;
  out->resize(bytes);
  return true;
}

bool public_bytes(std::string_view key, std::vector<uint8_t>* out) {
  return key.starts_with(kPrefix) && from_base64(key.substr(kPrefix.size()), out, 64) &&
         out->size() == crypto_sign_PUBLICKEYBYTES;
}

// DSSE's pre-authentication encoding: what is signed.
std::string encoding_of(std::string_view payload) {
  const std::string_view type = kPayloadType;
  return fmt::format("DSSEv1 {} {} {} ", type.size(), type, payload.size()).append(payload);
}

// A secret is never readable by others, not even for the moment between writing and chmod.
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

}  // namespace

std::string make_key(const std::string& path) {
  start_sodium();
  std::array<uint8_t, crypto_sign_PUBLICKEYBYTES> pub{};
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret{};
  crypto_sign_keypair(pub.data(), secret.data());
  const std::string key = std::string(kPrefix) + to_base64(pub.data(), pub.size());
  const OrderedJson j = {
      {"type", kKeyType}, {"public", key}, {"seed", to_base64(secret.data(), crypto_sign_SEEDBYTES)}};
  sodium_memzero(secret.data(), secret.size());
  write_secret(path, j.dump(2) + "\n");
  write_file_atomic(path + ".pub", key + "\n");
  return key;
}

SigningKey load_key(const std::string& path) {
  start_sodium();
  struct stat st{};
  if (stat(path.c_str(), &st) != 0)
    fail_missing("{}: no signing key there: make one with `mindxtrain receipt keygen {}`", path, path);
  if (st.st_mode & 077) fail_input("{}: others may read this key: `chmod 600 {}`", path, path);
  if (st.st_size > 4096) fail_input("{}: is no signing key: make one with `mindxtrain receipt keygen`", path);
  const Json j = parse_json(read_file(path), path);
  SigningKey key;
  std::vector<uint8_t> seed;
  std::array<uint8_t, crypto_sign_PUBLICKEYBYTES> pub{};
  const auto text = [&](const char* name) {
    return j.is_object() && j.contains(name) && j[name].is_string() ? j[name].get<std::string>() : "";
  };
  if (text("type") != kKeyType || !from_base64(text("seed"), &seed, 64) || seed.size() != crypto_sign_SEEDBYTES)
    fail_input("{}: is no signing key: make one with `mindxtrain receipt keygen`", path);
  crypto_sign_seed_keypair(pub.data(), key.secret.data(), seed.data());
  sodium_memzero(seed.data(), seed.size());
  key.public_key = std::string(kPrefix) + to_base64(pub.data(), pub.size());
  if (key.public_key != text("public")) fail_input("{}: its public and secret halves do not belong together", path);
  return key;
}

std::string load_public_key(const std::string& key_or_path) {
  std::vector<uint8_t> bytes;
  if (public_bytes(key_or_path, &bytes)) return key_or_path;
  const std::string text(trim(read_file(key_or_path).substr(0, 256)));
  if (!public_bytes(text, &bytes)) fail_input("{}: is no public key (ed25519:…)", key_or_path);
  return text;
}

std::string seal(std::string_view payload, const SigningKey& key) {
  start_sodium();
  const std::string signed_text = encoding_of(payload);
  std::array<uint8_t, crypto_sign_BYTES> sig{};
  crypto_sign_detached(sig.data(), nullptr, reinterpret_cast<const uint8_t*>(signed_text.data()), signed_text.size(),
                       key.secret.data());
  const OrderedJson j = {{"payloadType", kPayloadType},
                         {"payload", to_base64(reinterpret_cast<const uint8_t*>(payload.data()), payload.size())},
                         {"signatures", {{{"keyid", key.public_key}, {"sig", to_base64(sig.data(), sig.size())}}}}};
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
  const auto text = [](const Json& o, const char* name) {
    return o.is_object() && o.contains(name) && o[name].is_string() ? o[name].get<std::string>() : std::string();
  };
  if (text(j, "payloadType") != kPayloadType) return fmt::format("payloadType is not {}", kPayloadType);
  std::vector<uint8_t> bytes, pub, sig;
  if (!from_base64(text(j, "payload"), &bytes, SIZE_MAX)) return "payload is no base64";
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != payload)
    return "payload is not this manifest: it was signed before it was changed, or belongs to another";
  if (!public_bytes(public_key, &pub)) return fmt::format("{} is no public key", public_key);
  if (!j.contains("signatures") || !j["signatures"].is_array()) return "signatures are missing";
  const std::string signed_text = encoding_of(payload);
  std::string why = fmt::format("no signature by {}", public_key);
  for (const Json& s : j["signatures"]) {
    if (text(s, "keyid") != public_key) continue;
    if (from_base64(text(s, "sig"), &sig, 128) && sig.size() == crypto_sign_BYTES &&
        crypto_sign_verify_detached(sig.data(), reinterpret_cast<const uint8_t*>(signed_text.data()),
                                    signed_text.size(), pub.data()) == 0)
      return "";
    why = fmt::format("the signature by {} does not hold", public_key);
  }
  return why;
}

}  // namespace mxt::provenance
