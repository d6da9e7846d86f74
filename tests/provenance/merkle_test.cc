#include "provenance/merkle.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"

namespace mxt::provenance {
namespace {

std::vector<FileRecord> files(size_t n) {
  std::vector<FileRecord> out;
  for (size_t i = 0; i < n; ++i)
    out.push_back({"checkpoint/" + std::to_string(i), {blake3_hex(std::to_string(i)), sha256_hex("x"), i}});
  return out;
}

TEST(Merkle, EveryFileOfEverySizeIsProvedAndNoOther) {
  for (size_t n : {1, 2, 3, 5, 8, 17}) {
    const auto f = files(n);
    const std::string root = merkle_root(f);
    for (const FileRecord& r : f) {
      const Json proof = merkle_proof(f, r.path);
      EXPECT_EQ(check_merkle_proof(proof, root), "") << n << " " << r.path;
      for (const auto& [key, value] :
           {std::pair<const char*, Json>{"blake3", blake3_hex("other")}, {"path", "checkpoint/x"}, {"bytes", 99}}) {
        Json forged = proof;
        forged[key] = value;
        EXPECT_NE(check_merkle_proof(forged, root), "") << n << " " << r.path << " " << key;
      }
    }
    EXPECT_THROW(merkle_proof(f, "checkpoint/none"), Error);
  }
}

TEST(Merkle, TheRootDoesNotDependOnTheOrderGivenAndChangesWithEveryFile) {
  auto f = files(5);
  const std::string root = merkle_root(f);
  std::swap(f[0], f[4]);
  EXPECT_EQ(merkle_root(f), root);
  f[2].digests.bytes += 1;
  EXPECT_NE(merkle_root(f), root);
  EXPECT_NE(merkle_root(files(4)), root);
  EXPECT_EQ(merkle_root({}), blake3_hex(""));
}

// The documented order, by hand for two leaves.
TEST(Merkle, IsTheDocumentedTree) {
  const auto leaf = [](const std::string& hex, char bytes, const std::string& path) {
    std::string s(1, '\0');
    for (size_t i = 0; i < hex.size(); i += 2) s += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    s += bytes;
    s += std::string(7, '\0') + path;
    Blake3 h;
    h.update(s);
    return h.digest();
  };
  const auto f = files(2);
  Blake3 h;
  h.update("\1");
  for (const FileRecord& r : f) {
    const Digest d = leaf(r.digests.blake3, static_cast<char>(r.digests.bytes), r.path);
    h.update(d.data(), d.size());
  }
  EXPECT_EQ(merkle_root(f), h.hex());
}

TEST(Merkle, WhatIsNoProofIsSaidSo) {
  const std::string root = merkle_root(files(3));
  for (const char* text :
       {"null", "[]", "{}", R"({"path":"a","blake3":"zz","bytes":1,"index":0,"files":1,"siblings":[]})",
        R"({"path":"a","blake3":1,"bytes":-1,"index":5,"files":1,"siblings":{}})"})
    EXPECT_NE(check_merkle_proof(Json::parse(text), root), "") << text;
  Json proof = merkle_proof(files(3), "checkpoint/1");
  proof["root"] = root;
  EXPECT_EQ(check_merkle_proof(proof, root), "");
  proof["root"] = merkle_root(files(2));
  EXPECT_NE(check_merkle_proof(proof, root), "");
  proof["root"] = root;
  proof["siblings"].push_back(root);
  EXPECT_NE(check_merkle_proof(proof, root), "");
}

}  // namespace
}  // namespace mxt::provenance
