// A signature of a model's folder that OpenSSF's model-signing verifies: a Sigstore bundle over an in-toto statement,
// ECDSA P-256 (that tool knows no Ed25519). Sources: model_signing/signature/v1.0, sigstore bundle v0.3, DSSE.
#pragma once

#include <string>
#include <string_view>

#include "provenance/sign.h"

namespace mxt::provenance {

// Writes a new P-256 key (PEM, PKCS#8, for its owner alone, never over another file) and its public half to `path`.pub.
// With a passphrase it is encrypted (PBES2, AES-256), as openssl does it.
void make_p256_key(const std::string& path, std::string_view passphrase = "");

// The bundle's text over every file of `folder`, which has been signed by the PEM key in `key_path`. `left_out`: the
// bundle's own place below the folder, "" = elsewhere. Errors: kMissing where there is no key, or an encrypted one's
// passphrase is not; kBadInput where it is no P-256 key, the passphrase is another, or the folder holds no file, a
// link, or a name that is no UTF-8.
std::string sign_model(const std::string& folder, const std::string& key_path, const std::string& left_out,
                       const Passphrase& passphrase = {});

// kBadInput where the bundle would be written over anything but an older one: a key, or a model's own file.
void check_signature_place(const std::string& path);

}  // namespace mxt::provenance
