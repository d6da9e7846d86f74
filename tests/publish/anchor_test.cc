// Anchors on a real node (anvil), where it is installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "evm/abi.h"
#include "evm/anvil.h"
#include "evm/send.h"
#include "publish/evm/anchor.h"
#include "publish/support.h"

#define NEEDS_ANVIL()                     \
  const auto chain = evm::Anvil::start(); \
  if (!chain) GTEST_SKIP() << "anvil is not installed here (./dev contracts)"

namespace mxt::publish {
namespace {

constexpr const char* kKey = "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d";

Surroundings with_key(const std::string& key = kKey) {
  Surroundings s;
  s.variable = [key](const std::string& name) { return name == "MINDXTRAIN_EVM_KEY" ? key : ""; };
  s.poll_seconds = 0.05;
  s.http.retry_base_seconds = 0.01;
  return s;
}

std::string section(const evm::Anvil& chain, const evm::Address& registry, int chain_id = 31337) {
  return fmt::format("publish: {{evm: {{rpc_url: \"{}\", chain_id: {}, confirmations: 1, registry: \"{}\"}}}}\n",
                     chain.url(), chain_id, evm::text_of(registry));
}

Exit code_of(const std::function<void()>& f, const std::string& part) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.code();
  }
  return Exit::kOk;
}

// A published copy of a run, as a download of it lies.
std::string copy_of(const FinishedRun& f) {
  const std::string to = f.place() + "/copy";
  for (const TreeEntry& e : open_run(f.path()).files) {
    make_folders(fs::path(to + "/" + e.path).parent_path().string());
    write_file_atomic(to + "/" + e.path, e.kind == TreeEntry::Kind::kText ? e.source : read_file(e.source));
  }
  return to;
}

TEST(Anchor, IsWrittenOnceAndHoldsForTheRunAndForItsCopy) {
  NEEDS_ANVIL();
  const evm::Address registry = chain->deploy("registry");
  const evm::Address publisher = evm::Anvil::account(1).address();
  const FinishedRun f(section(*chain, registry));
  const auto outcome = publish(open_run(f.path()), with_key(), {}, false);
  ASSERT_EQ(outcome.size(), 1u);
  EXPECT_EQ(outcome[0].name, "anchor");
  EXPECT_EQ(outcome[0].result["publisher"], evm::text_of(publisher));
  EXPECT_TRUE(outcome[0].result.contains("tx"));
  EXPECT_EQ(chain->rpc().nonce(publisher), 1u);
  EXPECT_EQ(read_file(f.path() + "/publish.json").find(kKey), std::string::npos);

  EXPECT_EQ(publish(open_run(f.path()), with_key(), {}, false)[0].state, StepOutcome::State::kKept);
  fs::remove(f.path() + "/publish.json");  // even where nothing is remembered, the chain does
  EXPECT_FALSE(publish(open_run(f.path()), with_key(), {}, false)[0].result.contains("tx"));
  EXPECT_EQ(chain->rpc().nonce(publisher), 1u);

  const std::string copy = copy_of(f) + "/provenance/manifest.json";
  for (const std::string& manifest : {f.path() + "/manifest.json", copy}) {
    for (const auto& who : {std::optional<evm::Address>(), std::optional(publisher)}) {
      const AnchorCheck c = check_anchor(manifest, chain->rpc(), registry, who);
      EXPECT_TRUE(c.findings.empty()) << c.findings[0].what;
      ASSERT_EQ(c.lines.size(), 1u);
      EXPECT_NE(c.lines[0].find(evm::text_of(publisher)), std::string::npos) << c.lines[0];
    }
  }
  const auto finding = [&](const std::string& manifest, const evm::Address& at, std::optional<evm::Address> who) {
    const AnchorCheck c = check_anchor(manifest, chain->rpc(), at, who);
    return c.findings.empty() ? "" : c.findings[0].what;
  };
  EXPECT_NE(finding(copy, registry, evm::Anvil::account(2).address()).find("no such run"), std::string::npos);
  EXPECT_NE(finding(copy, publisher, publisher).find("no contract"), std::string::npos);
  write_file_atomic(f.place() + "/copy/README.md", "another card");
  EXPECT_NE(finding(copy, registry, publisher).find("CID"), std::string::npos);
}

TEST(Anchor, ADryRunPrintsTheCallAndSendsNothing) {
  NEEDS_ANVIL();
  const evm::Address registry = chain->deploy("registry");
  const FinishedRun f(section(*chain, registry));
  const auto before = chain->rpc().block_number();
  const OrderedJson j = publish(open_run(f.path()), with_key(""), {}, true)[0].result;
  EXPECT_TRUE(j["data"].get<std::string>().starts_with("0x"));
  EXPECT_EQ(j["to"], evm::text_of(registry));
  EXPECT_EQ(chain->rpc().block_number(), before);
  // The same bytes from anybody do what was said.
  evm::SendSettings s;
  s.chain_id = 31337;
  s.poll_seconds = 0.05;
  const evm::Key key = evm::Anvil::account(2);
  send_transaction(chain->rpc(), key, registry, *evm::from_hex(j["data"].get<std::string>()), s, Json(),
                   [](const Json&) {});
  const auto entry =
      read_entry(chain->rpc(), registry, key.address(), *evm::digest_from_hex(j["run_id"].get<std::string>()));
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->cid, j["cid"].get<std::string>());
}

TEST(Anchor, NothingIsSignedForAnotherChainOrWithoutAContractOrKey) {
  NEEDS_ANVIL();
  const evm::Address registry = chain->deploy("registry"), publisher = evm::Anvil::account(1).address();
  const FinishedRun other(section(*chain, registry, 8453)), nothing(section(*chain, publisher)),
      good(section(*chain, registry));
  const auto doing = [&](const FinishedRun& f, const std::string& key) {
    return [&f, key] { publish(open_run(f.path()), with_key(key), {}, false); };
  };
  EXPECT_EQ(code_of(doing(other, kKey), "is on chain 31337, and 8453"), Exit::kBadInput);
  EXPECT_EQ(code_of(doing(nothing, kKey), "there is no contract"), Exit::kBadInput);
  EXPECT_EQ(code_of(doing(good, ""), "MINDXTRAIN_EVM_KEY"), Exit::kMissing);
  EXPECT_EQ(chain->rpc().nonce(publisher), 0u);
}

TEST(Anchor, AnotherManifestUnderTheSameIdIsNamed) {
  NEEDS_ANVIL();
  const evm::Address registry = chain->deploy("registry");
  const FinishedRun f(section(*chain, registry));
  const auto run = open_run(f.path());
  const evm::Key key = evm::Anvil::account(1);
  evm::SendSettings s;
  s.chain_id = 31337;
  s.poll_seconds = 0.05;
  send_transaction(chain->rpc(), key, registry,
                   evm::abi_call("anchor(bytes32,bytes32,string)",
                                 {evm::AbiValue::word(*evm::digest_from_hex("0x" + run.manifest_digest)),
                                  evm::AbiValue::number(1), evm::AbiValue::bytes("")}),
                   s, Json(), [](const Json&) {});
  EXPECT_EQ(code_of([&] { publish(run, with_key(), {}, false); }, "cannot be changed"), Exit::kVerifyFailed);
  EXPECT_NE(check_anchor(f.path() + "/manifest.json", chain->rpc(), registry, key.address())
                .findings.at(0)
                .what.find("digest"),
            std::string::npos);
}

}  // namespace
}  // namespace mxt::publish
