#include <cstdio>

#include "algorand/transaction.h"
#include "algorand_key.h"
#include "base/error.h"
#include "base/files.h"
#include "evm/keystore.h"
#include "model_files.h"
#include "new_key.h"
#include "provenance/model_sign.h"
#include "provenance/sign.h"
#include "verbs.h"

namespace mxt::app {
namespace {

struct KeyOptions {
  std::string file, kind = "ed25519", folder, key, out;
  bool encrypt = false;
};

std::string asked_passphrase(const KeyOptions& o) {
  const std::string passphrase = o.encrypt ? key_passphrase() : "";
  if (o.encrypt && passphrase.empty())
    fail_missing("--encrypt: set {} to the passphrase that the key is to have", provenance::kPassphraseVariable);
  return passphrase;
}

// 64 hexadecimal digits, or a keystore as wallets know it.
void make_evm(const KeyOptions& o) {
  const std::string passphrase = asked_passphrase(o);
  const evm::Key key = evm::new_key();
  provenance::write_secret(o.file,
                           o.encrypt ? evm::make_keystore(key, passphrase) : evm::hex(key.secret()).substr(2) + "\n");
  std::printf("%s\n", evm::text_of(key.address()).c_str());
}

void make(const KeyOptions& o) {
  if (o.kind == "evm") return make_evm(o);
  if (o.kind == "p256") {
    provenance::make_p256_key(o.file, asked_passphrase(o));
    std::printf("%s.pub\n", o.file.c_str());
    return;
  }
  const std::string key = provenance::make_key(o.file, asked_passphrase(o));
  if (o.kind == "algorand")
    std::printf("%s\n", algorand::text_of(algorand::address_of(algorand_seed(o.file))).c_str());
  else
    std::printf("%s\n", key.c_str());
}

void sign(const KeyOptions& o) {
  const std::string root = fs::weakly_canonical(fs::absolute(o.folder)).string(),
                    out = fs::weakly_canonical(fs::absolute(o.out)).string();
  const bool inside = out.starts_with(root + "/");
  provenance::check_signature_place(o.out);
  write_file_atomic(o.out,
                    provenance::sign_model(o.folder, o.key, inside ? out.substr(root.size() + 1) : "", key_passphrase));
  std::printf("%s\n", o.out.c_str());
}

}  // namespace

CLI::App* add_new_key(CLI::App& verb, const std::string& name, const std::string& description) {
  auto o = std::make_shared<KeyOptions>();
  auto* n = verb.add_subcommand(name, description);
  n->add_option("file", o->file, "where the key is written, for its owner alone")->required();
  n->add_option(
       "--kind", o->kind,
       "ed25519 (manifests: receipt.sign_key), p256 (key sign: OpenSSF model-signing), evm or algorand (chains: "
       "its address is printed)")
      ->check(CLI::IsMember({"ed25519", "p256", "evm", "algorand"}))
      ->capture_default_str();
  n->add_flag("--encrypt", o->encrypt, "under the passphrase in MINDXTRAIN_KEY_PASSPHRASE");
  n->callback([o] { make(*o); });
  return n;
}

void add_key(CLI::App& app) {
  auto* c = app.add_subcommand("key", "signing keys\nexample: mindxtrain key new ~/.mindxtrain.key");
  c->require_subcommand(1);
  auto o = std::make_shared<KeyOptions>();
  add_new_key(*c, "new",
              "a new key, its public half in FILE.pub; nothing is overwritten\nexample: mindxtrain key "
              "new ~/.mindxtrain.key --encrypt");
  auto* s = c->add_subcommand("sign",
                              "sign a model's folder so that OpenSSF's `model_signing verify key` accepts it\nexample: "
                              "mindxtrain key sign out/run1/checkpoint --key p256.key --out model.sig");
  s->add_option("folder", o->folder, "the model")->required();
  s->add_option("--key", o->key, "key made by `key new FILE --kind p256`")->required();
  s->add_option("--out", o->out, "file for the signature")->required();
  s->callback([o] { sign(*o); });
}

}  // namespace mxt::app
