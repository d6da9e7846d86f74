#include "provenance/model_sign.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/hash_files.h"
#include "base/json.h"
#include "base/text.h"
#include "provenance/sign.h"

namespace mxt::provenance {
namespace {

constexpr const char* kMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json";
constexpr const char* kModelPredicate = "https://model_signing/signature/v1.0";

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(n)};
}

std::string public_pem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free);
  MXT_ASSERT(bio && PEM_write_bio_PUBKEY(bio.get(), key) == 1);
  return text_of(bio.get());
}

// What OpenSSL asks for where a key is encrypted, by whatever kind of PEM.
struct Asked {
  const Passphrase& source;
  bool asked = false, given = false;
  static int answer(char* to, int room, int, void* self) {
    Asked& a = *static_cast<Asked*>(self);
    a.asked = true;
    std::string words = a.source ? a.source() : "";
    a.given = !words.empty();
    const size_t n = words.copy(to, static_cast<size_t>(room));
    OPENSSL_cleanse(words.data(), words.size());
    return n == 0 ? -1 : static_cast<int>(n);
  }
};

Key load_p256_key(const std::string& path, const Passphrase& passphrase) {
  struct stat st{};
  if (stat(path.c_str(), &st) != 0)
    fail_missing("{}: no key there: make one with `mindxtrain key new {} --kind p256`", path, path);
  if (st.st_mode & 077) fail_input("{}: others may read this key: `chmod 600 {}`", path, path);
  const std::string pem = st.st_size < 65536 ? read_file(path) : "";
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  Asked asked{passphrase};
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &Asked::answer, &asked), &EVP_PKEY_free);
  if (!key && asked.asked && !asked.given)
    fail_missing("{}: is encrypted: set {} to its passphrase", path, kPassphraseVariable);
  if (!key && asked.asked) fail_input("{}: the passphrase in {} is not that of this key", path, kPassphraseVariable);
  char group[64] = "";
  if (!key || EVP_PKEY_get_group_name(key.get(), group, sizeof group, nullptr) != 1 ||
      std::string_view(group) != "prime256v1")
    fail_input("{}: is no P-256 key in PEM: make one with `mindxtrain key new FILE --kind p256`", path);
  return key;
}

std::string signature(EVP_PKEY* key, std::string_view text) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> c(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  size_t n = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  MXT_ASSERT(c && EVP_DigestSignInit(c.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
             EVP_DigestSign(c.get(), nullptr, &n, data, text.size()) == 1);
  std::string out(n, '\0');
  MXT_ASSERT(EVP_DigestSign(c.get(), reinterpret_cast<unsigned char*>(out.data()), &n, data, text.size()) == 1);
  out.resize(n);
  return out;
}

bool is_ignored(const std::string& path, const std::vector<std::string>& ignored) {
  for (const std::string& i : ignored)
    if (path == i || path.starts_with(i + "/")) return true;
  return false;
}

std::string raw(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

// Subject: SHA-256 over the files' raw digests, in the order of their names.
OrderedJson statement(const std::string& folder, const std::vector<std::string>& ignored) {
  std::vector<std::string> files;
  for (const std::string& f : list_entries(folder)) {
    if (is_ignored(f, ignored)) continue;
    if (!fs::is_regular_file(fs::symlink_status(folder + "/" + f)))
      fail_input("{}/{}: is no plain file, and a signature covers those alone: remove it", folder, f);
    if (!is_valid_utf8(f))
      fail_input("{}/{}: its name is not UTF-8, and a signature holds it as text: rename it", folder, printable(f));
    files.push_back(f);
  }
  if (files.empty()) fail_input("{}: holds no file to sign", folder);
  std::vector<std::string> paths;
  for (const std::string& f : files) paths.push_back(folder + "/" + f);
  const std::vector<FileDigests> digests = hash_files(paths);
  OrderedJson resources = OrderedJson::array();
  Sha256 all;
  for (size_t i = 0; i < files.size(); ++i) {
    resources.push_back({{"name", files[i]}, {"algorithm", "sha256"}, {"digest", digests[i].sha256}});
    all.update(raw(digests[i].sha256));
  }
  const std::string name = fs::weakly_canonical(fs::absolute(folder)).filename().string();
  return {{"_type", "https://in-toto.io/Statement/v1"},
          {"subject", OrderedJson::array({{{"name", name}, {"digest", {{"sha256", all.hex()}}}}})},
          {"predicateType", kModelPredicate},
          {"predicate",
           {{"serialization",
             {{"method", "files"}, {"hash_type", "sha256"}, {"allow_symlinks", false}, {"ignore_paths", ignored}}},
            {"resources", std::move(resources)}}}};
}

}  // namespace

void check_signature_place(const std::string& path) {
  std::error_code ec;
  if (!fs::exists(fs::symlink_status(path, ec))) return;
  if (!fs::is_regular_file(path, ec)) fail_input("--out {}: is no file: name one for the signature", path);
  std::ifstream file(path, std::ios::binary);
  std::string head(std::strlen(kMediaType) + 64, '\0');  // ours begins with it
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (file.gcount() > 0 && head.find(kMediaType) == std::string::npos)
    fail_input("--out {}: is there already, and is no signature of a model: nothing else is written over", path);
}

void make_p256_key(const std::string& path, std::string_view passphrase) {
  const Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  if (!key) fail_missing("OpenSSL cannot make a P-256 key on this machine");
  if (fs::exists(fs::symlink_status(path + ".pub")))
    fail_input("{}.pub: exists already: choose another name (a key is never overwritten)", path);
  const Bio bio(BIO_new(BIO_s_secmem()), &BIO_free);
  MXT_ASSERT(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(),
                                                  passphrase.empty() ? nullptr : EVP_aes_256_cbc(), passphrase.data(),
                                                  static_cast<int>(passphrase.size()), nullptr, nullptr) == 1);
  write_secret(path, text_of(bio.get()));
  write_file_atomic(path + ".pub", public_pem(key.get()));
}

std::string sign_model(const std::string& folder, const std::string& key_path, const std::string& left_out,
                       const Passphrase& passphrase) {
  if (!fs::is_directory(folder)) fail_input("{}: is no folder", folder);
  const Key key = load_p256_key(key_path, passphrase);
  std::vector<std::string> ignored = {".git", ".gitattributes", ".github", ".gitignore"};  // as that tool leaves out
  if (!left_out.empty()) ignored.push_back(left_out);
  const std::string payload = statement(folder, ignored).dump();
  const OrderedJson bundle = {
      {"mediaType", kMediaType},
      {"verificationMaterial",
       {{"publicKey", {{"hint", sha256_hex(public_pem(key.get()))}}}, {"tlogEntries", OrderedJson::array()}}},
      {"dsseEnvelope",
       {{"payload", to_base64(payload)},
        {"payloadType", kPayloadType},
        {"signatures", OrderedJson::array({{{"sig", to_base64(signature(key.get(), pre_authentication(payload)))},
                                            {"keyid", ""}}})}}}};
  return bundle.dump(2) + "\n";
}

}  // namespace mxt::provenance
