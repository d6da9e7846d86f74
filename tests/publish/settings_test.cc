// What of a publish section is wrong, missing or without effect is known before there is a run.
#include <gtest/gtest.h>

#include "base/error.h"
#include "publish/steps.h"
#include "publish/support.h"

namespace mxt::publish {
namespace {

config::Recipe recipe_of(const std::string& publish) {
  return config::parse_recipe(
      "meta: {project: p, run_name: tiny}\nmodel: {name: org/base}\nhardware: {name: cpu}\ndata: {source: synth}\n"
      "publish: {" +
          publish + "}\n",
      "recipe.yaml");
}

Surroundings around(const std::map<std::string, std::string>& variables = {}) {
  Surroundings s;
  s.variable = [variables](const std::string& name) {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  };
  return s;
}

TEST(Settings, WhatPublishingWouldRefuseIsFoundWithItsKey) {
  const std::string evm = "rpc_url: \"http://127.0.0.1:1\"";
  for (const auto& [section, begin] : std::vector<std::pair<std::string, std::string>>{
           {"hf: {repo: name}", "publish.hf.repo: \"name\" is not owner/name"},
           {"hf: {repo: a/b/c}", "publish.hf.repo: "},
           {"ipfs: {profile: foo}", "publish.ipfs.profile: \"foo\" is no profile"},
           {"ipfs: {api_url: \"127.0.0.1:5001\"}", "publish.ipfs.api_url: "},
           {"mindx: {api_url: nowhere}", "publish.mindx.api_url: "},
           {"agenticplace: {api_url: \"ftp://place\"}", "publish.agenticplace.api_url: "},
           {"bankon: {subname: \"My Model\"}", "publish.bankon.subname: "},
           {"bankon: {subname: my, ens_parent: \"a..b\"}", "publish.bankon.ens_parent: "},
           {"algorand: {algod_url: x, asa_id: 1}", "publish.algorand.algod_url: "},
           {"evm: {rpc_url: node, registry: \"0x8004A169FB4a3325136EB29fA0ceB6D2e539a432\"}", "publish.evm.rpc_url: "},
           {"evm: {" + evm + ", registry: \"0x12\"}", "publish.evm.registry: "},
           {"evm: {" + evm + ", registry: \"0x8004a169FB4a3325136EB29fA0ceB6D2e539a432\"}", "publish.evm.registry: "},
           {"evm: {" + evm + ", identity_registry: \"0x12\"}", "publish.evm.identity_registry: "},
           {"evm: {" + evm + ", agent_id: 1}", "publish.evm.agent_id: "},
           {"evm: {" + evm + ", validation_registry: \"0x8004A169FB4a3325136EB29fA0ceB6D2e539a432\"}",
            "publish.evm.validation_registry: "},
           {"evm: {" + evm + ", inft_token: 1}", "publish.evm: inft and inft_token"}}) {
    const auto wrong = wrong_settings(recipe_of(section));
    ASSERT_EQ(wrong.size(), 1u) << section;
    EXPECT_TRUE(wrong[0].starts_with(begin)) << wrong[0];
  }
  EXPECT_EQ(wrong_settings(recipe_of("hf: {repo: x}, ipfs: {profile: foo}, evm: {" + evm + ", agent_id: 1}")).size(),
            3u)
      << "all of them at once";
  const auto secret = wrong_settings(recipe_of("ipfs: {api_url: \"http://me:s3cret@node:5001\"}"));
  ASSERT_EQ(secret.size(), 1u);
  EXPECT_EQ(secret[0].find("s3cret"), std::string::npos) << secret[0];
  EXPECT_TRUE(
      wrong_settings(recipe_of("hf: {repo: a/b}, ipfs: {}, lighthouse: {}, mindx: {}, bankon: {subname: my}")).empty());
}

TEST(Settings, WhatHasNoEffectIsSaid) {
  for (const auto& [section, begin] : std::vector<std::pair<std::string, std::string>>{
           {"hf: {repo: a/b}, evm: {rpc_url: \"http://h\"}", "publish.evm: names no contract"},
           {"hf: {repo: a/b}, bankon: {ens_parent: my.eth}", "publish.bankon: has no subname"},
           {"agenticplace: {chain_map_url: \"http://map\"}", "publish.agenticplace.chain_map_url: not read"},
           {"evm: {rpc_url: \"http://h\", reputation_registry: \"0x8004BAa17C55a88189AE136b182e5fdA19dE9b63\"}",
            "publish.evm.reputation_registry: nothing is sent there"}}) {
    const auto lines = without_effect(recipe_of(section));
    ASSERT_EQ(lines.size(), 1u) << section;
    EXPECT_TRUE(lines[0].starts_with(begin)) << lines[0];
  }
  EXPECT_TRUE(without_effect(recipe_of("hf: {repo: a/b}, agenticplace: {}")).empty());
}

TEST(Settings, CredentialsAreAskedForBeforeThereIsARun) {
  const auto code = [](const std::string& section, Surroundings s, const std::string& part) {
    try {
      check_before_run(recipe_of(section), s);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      return e.code();
    }
    return Exit::kOk;
  };
  const std::string evm =
      "evm: {rpc_url: \"http://127.0.0.1:1\", registry: \"0x8004A169FB4a3325136EB29fA0ceB6D2e539a432\"}";
  EXPECT_EQ(code("hf: {repo: a/b}", around(), "HF_TOKEN"), Exit::kMissing);
  EXPECT_EQ(code("ipfs: {}, lighthouse: {}", around(), "LIGHTHOUSE_API_KEY"), Exit::kMissing);
  EXPECT_EQ(code(evm, around(), "MINDXTRAIN_EVM_KEY"), Exit::kMissing);
  EXPECT_EQ(code("algorand: {algod_url: \"http://h\"}", around(), "publish.algorand.asa_id"), Exit::kMissing);
  const std::string billing = "algorand: {algod_url: \"http://h\"}, billing: {x402: {network: ";
  EXPECT_EQ(code("ipfs: {}, " + billing + "algorand}}", around(), ""), Exit::kOk) << "its key pays fees";
  EXPECT_EQ(code(billing + "algorand}}", around(), "names no destination"), Exit::kBadInput);
  EXPECT_EQ(code(billing + "base}}", around(), "publish.algorand.asa_id"), Exit::kMissing);
  EXPECT_EQ(code("enabled: false, ipfs: {}", around(), "publish.enabled is false"), Exit::kBadInput);
  EXPECT_EQ(code("bankon: {}", around(), "names no destination"), Exit::kBadInput);
  EXPECT_EQ(code("ipfs: {}, lighthouse: {}", around({{"LIGHTHOUSE_API_KEY", "k"}}), ""), Exit::kOk);
}

}  // namespace
}  // namespace mxt::publish
