// Bytes that eth-account 0.14 makes of the same values.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "evm/abi.h"
#include "evm/keccak.h"
#include "evm/keystore.h"
#include "evm/rlp.h"
#include "evm/transaction.h"
#include "evm/typed_data.h"

namespace mxt::evm {
namespace {

Key key() { return Key(*from_hex("0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")); }
Address usdc() { return *parse_address("0x036CbD53842c5426634e7929541eC2318f3dCF7e"); }
constexpr uint64_t kBaseSepolia = 84532;

std::string repeated(int byte) { return std::string(32, static_cast<char>(byte)); }

TEST(Keccak, IsTheOneBeforeSha3) {
  EXPECT_EQ(hex(keccak256("")), "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470");
  EXPECT_EQ(hex(selector("transfer(address,uint256)")), "0xa9059cbb");
  EXPECT_EQ(hex(topic("Transfer(address,address,uint256)")).substr(0, 10), "0xddf252ad");
}

TEST(Address, CaseIsAChecksum) {
  EXPECT_EQ(text_of(key().address()), "0x70997970C51812dc3A010C7d01b50e0d17dc79C8");
  EXPECT_TRUE(parse_address("0x70997970c51812dc3a010c7d01b50e0d17dc79c8"));
  for (const char* wrong :
       {"0x70997970c51812dc3A010C7d01b50e0d17dc79C8", "70997970C51812dc3A010C7d01b50e0d17dc79C8",
        "0x70997970C51812dc3A010C7d01b50e0d17dc79", "0x70997970C51812dc3A010C7d01b50e0d17dc79Cg", ""})
    EXPECT_FALSE(parse_address(wrong)) << wrong;
}

TEST(Numbers, AreReadStrictly) {
  const U256 most = std::numeric_limits<U256>::max();
  EXPECT_EQ(parse_decimal(decimal(most)), most);
  EXPECT_EQ(parse_quantity(quantity(most)), most);
  EXPECT_EQ(number_of(word_of(most)), most);
  for (const char* wrong : {"", "-1", "1e3", "0x1", "01", " 1",
                            "115792089237316195423570985008687907853269984665640564039457584007913129639936"})
    EXPECT_FALSE(parse_decimal(wrong)) << wrong;
  for (const char* wrong : {"", "0x", "1f", "0xg", "-0x1"}) EXPECT_FALSE(parse_quantity(wrong)) << wrong;
  EXPECT_FALSE(from_hex("0x123"));
}

TEST(Rlp, IsTheYellowPapers) {
  EXPECT_EQ(hex(rlp_bytes("dog")), "0x83646f67");
  EXPECT_EQ(hex(rlp_list({rlp_bytes("cat"), rlp_bytes("dog")})), "0xc88363617483646f67");
  EXPECT_EQ(hex(rlp_number(0)), "0x80");
  EXPECT_EQ(hex(rlp_number(15)), "0x0f");
  EXPECT_EQ(hex(rlp_number(1024)), "0x820400");
  EXPECT_EQ(hex(rlp_bytes("Lorem ipsum dolor sit amet, consectetur adipisicing elit")).substr(0, 6), "0xb838");
}

TEST(Abi, DynamicValuesStandBehindTheStaticOnes) {
  // The specification's example f(uint256,uint32[],bytes10,bytes) with (0x123, [0x456, 0x789], "1234567890", "Hello,
  // world!").
  const std::string got =
      hex(abi_call("f(uint256,uint32[],bytes10,bytes)",
                   {AbiValue::number(0x123), AbiValue::array({AbiValue::number(0x456), AbiValue::number(0x789)}),
                    AbiValue::word("1234567890"), AbiValue::bytes("Hello, world!")}));
  EXPECT_EQ(got,
            "0x8be65246"
            "0000000000000000000000000000000000000000000000000000000000000123"
            "0000000000000000000000000000000000000000000000000000000000000080"
            "3132333435363738393000000000000000000000000000000000000000000000"
            "00000000000000000000000000000000000000000000000000000000000000e0"
            "0000000000000000000000000000000000000000000000000000000000000002"
            "0000000000000000000000000000000000000000000000000000000000000456"
            "0000000000000000000000000000000000000000000000000000000000000789"
            "000000000000000000000000000000000000000000000000000000000000000d"
            "48656c6c6f2c20776f726c642100000000000000000000000000000000000000");
}

TEST(Abi, AnAnswerThatPointsOutsideItselfIsRefused) {
  const std::string good = abi_encode({AbiValue::number(7), AbiValue::bytes("abc")});
  EXPECT_EQ(AbiReader(good, "x").bytes(1), "abc");
  EXPECT_EQ(AbiReader(good, "x").number(0), 7);
  const auto refused = [](const std::string& data, size_t slot) {
    EXPECT_THROW(AbiReader(data, "x").bytes(slot), Error) << hex(data);
  };
  refused(good.substr(0, 95), 1);
  refused(abi_encode({AbiValue::number(32)}), 0);
  refused(word_of(32) + word_of(std::numeric_limits<U256>::max()), 0);
  refused(word_of(std::numeric_limits<U256>::max()), 0);
  refused(word_of(33) + word_of(0) + word_of(0), 0);
  EXPECT_THROW(AbiReader("", "x").number(0), Error);
  EXPECT_THROW(AbiReader(repeated(1), "x").address(0), Error);
  EXPECT_THROW(AbiReader(word_of(2), "x").boolean(0), Error);
}

TEST(Transaction, IsEthAccountsByteForByte) {
  Transaction t;
  t.chain_id = kBaseSepolia;
  t.nonce = 7;
  t.max_priority_fee = 1'000'000'000;
  t.max_fee = 2'000'000'000;
  t.gas = 200'000;
  t.to = usdc();
  t.data = *from_hex("0x85094452") + repeated(0x11) + repeated(0x22);
  const SignedTransaction s = sign(t, key());
  EXPECT_EQ(
      hex(s.raw),
      "0x02f8b383014a3407843b9aca00847735940083030d4094036cbd53842c5426634e7929541ec2318f3dcf7e80b8448509445211111111"
      "1111111111111111111111111111111111111111111111111111111122222222222222222222222222222222222222222222222222222222"
      "22222222c080a0c4c064f021fa506e796c982a5929a29366fd91be8e923f5dc0c6b6437b4d98f4a053839f8d5154d43513578bbbe284596b"
      "55136e2cc1eb5d65fa195321505d32dd");
  EXPECT_EQ(hex(s.hash), "0xfd1348fed0f64e0d952d30eff60d8751737165afa254758ca9a72d55aaecbdf0");
}

Authorization authorization() {
  Authorization a;
  a.from = key().address();
  a.to = *parse_address("0x209693Bc6afc0C5328bA36FaF03C514EF312287C");
  a.value = 10000;
  a.valid_before = 1740672154;
  a.nonce.fill(0xab);
  return a;
}

TEST(TypedData, AuthorizationIsEthAccounts) {
  const Digest domain = domain_separator("USDC", "2", kBaseSepolia, usdc());
  EXPECT_EQ(hex(domain), "0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818");
  EXPECT_EQ(hex(struct_hash(authorization())), "0xbeac949ad8a46ebbdbd23354ae690c32aaaa05bdab99b72b04a4131f88ebe1e5");
  const Digest digest = typed_digest(domain, struct_hash(authorization()));
  EXPECT_EQ(hex(digest), "0x4ab68d7eac60cec23411916cc3136d0d0c3305764e7383183fd7cb519d6123d8");
  EXPECT_EQ(
      hex(key().sign(digest).bytes()),
      "0x80fd02a3b44380cbba444c448261279e1c48fd50d2cf4d749c36f447c76105706a6a2ff57d03cea81b7d9c38739a168586d766d965e5"
      "77902693bba3905fe5471b");
}

TEST(TypedData, PermitWithAWitnessIsEthAccounts) {
  UptoPermit p;
  p.token = usdc();
  p.amount = 5'000'000;
  p.spender = *parse_address(kUptoProxy);
  p.nonce = 1;
  p.deadline = 1740672154;
  p.to = authorization().to;
  p.facilitator = key().address();
  EXPECT_EQ(hex(permit2_domain(kBaseSepolia)), "0x010f27a92fb9a32622f44f001dc4d15706a85b33499cfc2ce9033113ab26592c");
  EXPECT_EQ(hex(typed_digest(permit2_domain(kBaseSepolia), struct_hash(p))),
            "0x968839cc83f6e0456e006e5b134ed05f2af1e5b6846b2c46f16582a2abe51206");
}

TEST(Key, WhoSignedIsRecoveredAndTheOtherHalfIsRefused) {
  const Digest hash = keccak256("message");
  Signature s = key().sign(hash);
  EXPECT_EQ(recover(hash, s), key().address());
  EXPECT_EQ(parse_signature(s.bytes())->r, s.r);
  EXPECT_NE(recover(keccak256("another"), s), key().address());
  const U256 order("0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141");
  s.s = *digest_of(word_of(order - number_of(bytes_of(s.s))));
  s.y_parity ^= 1;
  EXPECT_FALSE(recover(hash, s)) << "malleable";
  EXPECT_FALSE(parse_signature(std::string(65, '\x05')));
  EXPECT_FALSE(parse_signature(std::string(64, '\0')));
  EXPECT_FALSE(recover(hash, Signature{}));
  EXPECT_THROW(Key(std::string(32, '\0')), Error);
  EXPECT_THROW(Key(std::string(32, '\xff')), Error);
  EXPECT_NE(new_key().address(), new_key().address());
}

// Made with eth-account 0.14: Account.encrypt(key, "correct horse", kdf="pbkdf2", iterations=1000).
constexpr const char* kKeystore =
    R"({"address": "70997970C51812dc3A010C7d01b50e0d17dc79C8", "crypto": {"cipher": "aes-128-ctr", "cipherparams": {"iv": "a09dc123201d85fd32c7ea7bf3acd1ca"}, "ciphertext": "6a9549a4b0ea1f9203e48244caa37775468ac0e29870deaa07dbe264316b740e", "kdf": "pbkdf2", "kdfparams": {"c": 1000, "dklen": 32, "prf": "hmac-sha256", "salt": "03d1f6a66a980104f6b4896fbaa5d921"}, "mac": "fe2cb1f4c26296acf708b706bfb44f952901dca418dcad574d7bd838804082b8"}, "id": "ca691bec-0e3a-4bd8-ba9b-81a6eba7ff93", "version": 3})";

TEST(Keystore, IsReadAsEthAccountWritesIt) {
  const auto words = [] { return std::string("correct horse"); };
  EXPECT_EQ(open_keystore(kKeystore, "k.json", words).address(), key().address());
  EXPECT_THROW(open_keystore(kKeystore, "k.json", [] { return std::string("wrong"); }), Error);
  EXPECT_THROW(open_keystore("{}", "k.json", words), Error);
}

TEST(Keystore, ComesBackFromAFileThatItsOwnerAloneReads) {
  const std::string path = testing::TempDir() + "mxt_evm_key_" + std::to_string(getpid());
  const auto words = [] { return std::string("p"); };
  write_file_atomic(path, make_keystore(key(), "p"));
  chmod(path.c_str(), 0600);
  EXPECT_EQ(load_key(path, "K", words).address(), key().address());
  chmod(path.c_str(), 0644);
  EXPECT_THROW(load_key(path, "K", words), Error);
  fs::remove(path);
  try {
    load_key("", "MINDXTRAIN_EVM_KEY", words);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kMissing);
    EXPECT_NE(std::string(e.what()).find("MINDXTRAIN_EVM_KEY"), std::string::npos);
  }
  try {
    load_key("abcdef0123", "K", words);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("abcdef"), std::string::npos) << "a secret stands in a message";
  }
}

TEST(Keystore, WhatIsNoKeyIsNamedWithWhatMakesOne) {
  const std::string path = testing::TempDir() + "mxt_evm_no_key_" + std::to_string(getpid());
  const auto refused = [&](const std::string& value, const std::string& place) {
    try {
      load_key(value, "K", [] { return std::string(); });
      ADD_FAILURE() << value;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::kBadInput);
      EXPECT_TRUE(std::string(e.what()).starts_with(place + ": ")) << e.what();
      EXPECT_NE(std::string(e.what()).find("--kind evm"), std::string::npos) << e.what();
    }
  };
  for (const char digit : {'0', 'f'}) {  // zero, and beyond the group's order
    refused(std::string(64, digit), "K");
    write_file_atomic(path, std::string(64, digit) + "\n");
    chmod(path.c_str(), 0600);
    refused(path, path);
  }
  for (const char* text : {"-----BEGIN PRIVATE KEY-----\n", "{\"type\":\"mindxtrain-ed25519-v1\"}", ""}) {
    write_file_atomic(path, text);
    chmod(path.c_str(), 0600);
    refused(path, path);
  }
  fs::remove(path);
}

}  // namespace
}  // namespace mxt::evm
