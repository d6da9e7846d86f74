#include <sys/stat.h>

#include "base/error.h"
#include "provenance/model_sign.h"
#include "provenance/support.h"

namespace mxt::provenance {
namespace {

struct Keys {
  RunFolder run;
  std::string path = run.file("key");
  std::string pub = make_key(path);
  SigningKey key = load_key(path);
};

TEST(Key, IsPrivateAndNeverOverwritten) {
  const Keys k;
  struct stat st{};
  ASSERT_EQ(stat(k.path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(k.key.public_key, k.pub);
  EXPECT_EQ(load_public_key(k.path + ".pub"), k.pub);
  EXPECT_EQ(load_public_key(k.pub), k.pub);
  EXPECT_THROW(make_key(k.path), Error);
  chmod(k.path.c_str(), 0644);
  EXPECT_THROW(load_key(k.path), Error);
}

TEST(Key, WhatIsNoneIsRefused) {
  const Keys k;
  try {
    load_key(k.run.file("nothing"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
    EXPECT_NE(std::string(e.what()).find("receipt keygen"), std::string::npos);
  }
  for (const char* text :
       {"", "{}", "[1]", "{\"type\":\"mindxtrain-ed25519-v1\",\"seed\":\"AAAA\",\"public\":\"x\"}"}) {
    k.run.put("bad", text);
    chmod(k.run.file("bad").c_str(), 0600);
    EXPECT_THROW(load_key(k.run.file("bad")), Error) << text;
  }
  k.run.put("bad", "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n");
  chmod(k.run.file("bad").c_str(), 0600);
  try {
    load_key(k.run.file("bad"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is a key in PEM"), std::string::npos) << e.what();
  }
  EXPECT_THROW(load_public_key("ed25519:AAAA"), Error);
}

TEST(Envelope, IsDsse) {
  const Keys k;
  const Json j = Json::parse(seal("hello", k.key));
  EXPECT_EQ(j["payloadType"], "application/vnd.in-toto+json");
  EXPECT_EQ(j["payload"], "aGVsbG8=");
  ASSERT_EQ(j["signatures"].size(), 1u);
  EXPECT_EQ(j["signatures"][0]["keyid"], k.pub);
  EXPECT_EQ(check_seal(j.dump(), "hello", k.pub), "");
}

TEST(Envelope, AnyChangeIsFound) {
  const Keys k;
  const std::string envelope = seal("hello", k.key);
  EXPECT_NE(check_seal(envelope, "hellp", k.pub), "");
  const std::string other = make_key(k.run.file("other"));
  EXPECT_NE(check_seal(envelope, "hello", other), "");
  Json j = Json::parse(envelope);
  std::string sig = j["signatures"][0]["sig"];
  sig[5] = sig[5] == 'A' ? 'B' : 'A';
  j["signatures"][0]["sig"] = sig;
  EXPECT_NE(check_seal(j.dump(), "hello", k.pub), "");
  for (const char* bad :
       {"", "{}", "[]", "{\"payloadType\":\"x\"}",
        "{\"payloadType\":\"application/vnd.in-toto+json\",\"payload\":\"aGVsbG8=\",\"signatures\":[3]}"})
    EXPECT_NE(check_seal(bad, "hello", k.pub), "") << bad;
}

TEST(Signed, ManifestVerifiesAndNamesItsSigner) {
  const Keys k;
  k.run.write(k.key);
  EXPECT_EQ(verify(k.run.manifest()).signer, k.pub);
  EXPECT_TRUE(verify(k.run.manifest(), {.trusted_key = k.pub}).ok());
  const std::string other = make_key(k.run.file("other"));
  const VerifyReport r = verify(k.run.manifest(), {.trusted_key = other});
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].field, "manifest.dsse.json");
}

TEST(Signed, RemovedSignatureIsFound) {
  const Keys k;
  k.run.write(k.key);
  fs::remove(k.run.file("manifest.dsse.json"));
  ASSERT_EQ(verify(k.run.manifest()).findings.size(), 1u);
  EXPECT_EQ(verify(k.run.manifest()).findings[0].field, "manifest.dsse.json");
  k.run.write();
  EXPECT_TRUE(verify(k.run.manifest()).ok());
  EXPECT_EQ(verify(k.run.manifest(), {.trusted_key = k.pub}).findings[0].field, "/predicate/signer");
}

TEST(Signed, ManifestRewrittenWithoutTheKeyIsFound) {
  const Keys k;
  k.run.write(k.key);
  const std::string envelope = read_file(k.run.file("manifest.dsse.json"));
  k.run.put("plan.json", "{\"choices\":[9]}\n");
  k.run.write();  // consistent in itself, but not signed
  k.run.put("manifest.dsse.json", envelope);
  const VerifyReport r = verify(k.run.manifest(), {.trusted_key = k.pub});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].field, "manifest.dsse.json");
}

TEST(Key, AKeystoreOpensWithItsPassphraseAlone) {
  const RunFolder run;
  const std::string path = run.file("store"), pub = make_key(path, "correct horse");
  EXPECT_EQ(load_key(path, [] { return "correct horse"; }).public_key, pub);
  EXPECT_EQ(read_file(path).find("seed"), std::string::npos);
  const auto code = [&](const Passphrase& p) {
    try {
      load_key(path, p);
    } catch (const Error& e) {
      return e.code();
    }
    return Exit::kOk;
  };
  EXPECT_EQ(code([] { return "wrong"; }), Exit::kBadInput);
  EXPECT_EQ(code([] { return ""; }), Exit::kMissing);
  EXPECT_EQ(code({}), Exit::kMissing);
  // Figures that would take this machine's memory are refused before they are used.
  Json j = Json::parse(read_file(path));
  j["memory"] = uint64_t{1} << 40;
  run.put("big", j.dump());
  chmod(run.file("big").c_str(), 0600);
  EXPECT_THROW(load_key(run.file("big"), [] { return "correct horse"; }), Error);
}

TEST(Key, OfAModelsSignatureMayBeEncrypted) {
  const RunFolder run;
  const std::string path = run.file("p256.key"), model = run.file("model");
  make_folders(model);
  run.put("model/weights", "w");
  make_p256_key(path, "correct horse");
  EXPECT_TRUE(read_file(path).starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
  const auto refused = [&](const Passphrase& p, const std::string& part) {
    try {
      sign_model(model, path, "", p);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      return e.code();
    }
    return Exit::kOk;
  };
  EXPECT_EQ(refused({}, "is encrypted: set MINDXTRAIN_KEY_PASSPHRASE"), Exit::kMissing);
  EXPECT_EQ(refused([] { return ""; }, "is encrypted: set MINDXTRAIN_KEY_PASSPHRASE"), Exit::kMissing);
  EXPECT_EQ(refused([] { return "wrong"; }, "is not that of this key"), Exit::kBadInput);
  EXPECT_EQ(refused([] { return std::string(5000, 'w'); }, "is not that of this key"), Exit::kBadInput);
  EXPECT_EQ(refused([] { return "correct horse"; }, ""), Exit::kOk);
  make_p256_key(run.file("plain.key"));
  EXPECT_NE(sign_model(model, run.file("plain.key"), "").find("dsseEnvelope"), std::string::npos);
}

TEST(ModelSignature, IsWrittenOverAnOlderOneAlone) {
  const RunFolder run;
  const std::string key = run.file("p256.key"), model = run.file("model"), signature = run.file("model.sig");
  make_folders(model);
  run.put("model/weights", "w");
  make_p256_key(key);
  check_signature_place(signature);
  run.put("model.sig", "");
  check_signature_place(signature);
  run.put("model.sig", sign_model(model, key, ""));
  check_signature_place(signature);
  for (const std::string& other : {key, key + ".pub", run.file("model/weights"), model, std::string("/dev/null")})
    EXPECT_THROW(check_signature_place(other), Error) << other;
}

TEST(ModelSignature, ANameThatIsNoTextIsNamed) {
  const RunFolder run;
  make_p256_key(run.file("p256.key"));
  make_folders(run.file("model"));
  run.put("model/a\xff", "w");
  try {
    sign_model(run.file("model"), run.file("p256.key"), "");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("a\\xff: its name is not UTF-8"), std::string::npos) << e.what();
  }
}

TEST(Key, APublicHalfIsNotOverwrittenEither) {
  const RunFolder run;
  run.put("k.pub", "mine");
  EXPECT_THROW(make_key(run.file("k")), Error);
  EXPECT_FALSE(fs::exists(run.file("k")));
}

TEST(Envelope, MayBeUrlSafeAndHoldOtherSignatures) {
  const Keys k;
  const std::string payload = "\xff\xfe\xfd???>>>";  // base64 with + and /
  Json j = Json::parse(seal(payload, k.key));
  for (std::string* s : {j["payload"].get_ptr<std::string*>(), j["signatures"][0]["sig"].get_ptr<std::string*>()})
    for (char& c : *s) c = c == '+' ? '-' : c == '/' ? '_' : c;
  EXPECT_NE(j["payload"].get<std::string>().find_first_of("-_"), std::string::npos);
  EXPECT_EQ(check_seal(j.dump(), payload, k.pub), "");
  j["signatures"][0]["keyid"] = "anything";  // a hint
  j["signatures"].insert(j["signatures"].begin(), Json{{"keyid", "somebody"}, {"sig", "AAAA"}});
  EXPECT_EQ(check_seal(j.dump(), payload, k.pub), "");
  j["signatures"].erase(1);
  EXPECT_NE(check_seal(j.dump(), payload, k.pub), "");
}

// RFC 8032's first key over DSSE's example, as securesystemslib signs it, but for the payload's type.
TEST(Envelope, SignsThePreAuthenticationEncoding) {
  EXPECT_EQ(pre_authentication("hello world"), "DSSEv1 28 application/vnd.in-toto+json 11 hello world");
}

}  // namespace
}  // namespace mxt::provenance
