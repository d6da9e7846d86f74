#include "publish/evm/validation.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "evm/abi.h"
#include "evm/keccak.h"
#include "publish/evm/agent.h"
#include "publish/evm/chain.h"

namespace mxt::publish {
namespace {

using V = evm::AbiValue;

constexpr const char* kRequest = "validationRequest(address,uint256,string,bytes32)";
constexpr const char* kStatus = "getValidationStatus(bytes32)";
constexpr const char* kManifest = "/provenance/manifest.json";

struct Status {
  evm::Address validator{};
  evm::U256 agent;
  int response = 0;
  bool answered = false;
};

class ValidationStep final : public Step {
 public:
  ValidationStep(const config::EvmPublish& s, const Run& run, const Surroundings& around)
      : settings_(s),
        run_(run),
        chain_(std::make_unique<EvmChain>(s, around)),
        registry_(evm::address_setting(*s.validation_registry, "publish.evm.validation_registry")) {
    if (!s.agent_id && !s.identity_registry)
      fail_missing("publish.evm.validation_registry: an agent asks: set publish.evm.agent_id or identity_registry");
  }
  std::string name() const override { return "erc8004_validation"; }
  std::string target() const override { return chain_target(settings_, registry_); }
  void check(const StepContext& c) const override {
    chain_->key();
    validator(c);
  }

  OrderedJson preview(const StepContext& c) const override {
    OrderedJson j = {{"chain_id", settings_.chain_id}, {"to", evm::text_of(registry_)}};
    const auto agent = agent_of(c, settings_);
    j["request_hash"] = evm::hex(hash());
    j["uri"] = uri(c);
    // The agent's id is the registry's to give: without it there are no bytes yet.
    j["data"] = agent ? OrderedJson(evm::hex(call(c, *agent))) : OrderedJson("after the step erc8004 has given an id");
    return j;
  }

  Json run(const StepContext& c) const override {
    chain_->require(registry_, "publish.evm.validation_registry");
    const auto agent = agent_of(c, settings_);
    if (!agent) fail_input("erc8004_validation: the step erc8004 has given no agent's id yet: publish without --only");
    const evm::Address asked = validator(c);
    if (uri(c).empty())
      fail_input(
          "erc8004_validation: a validator reads the manifest: publish the run to publish.ipfs or publish.hf first");
    Json result = {{"chain_id", settings_.chain_id},
                   {"registry", evm::text_of(registry_)},
                   {"validator", evm::text_of(asked)},
                   {"agent_id", evm::decimal(*agent)},
                   {"request_hash", evm::hex(hash())}};
    auto there = status();
    if (!there || c.state().is_object()) {
      result["tx"] = evm::hex(chain_->send(c, "request", registry_, call(c, *agent)).hash);
      there = status();
    }
    if (!there)
      fail_verify("{}: the request was mined, and {} knows none: it is no validation registry of ERC-8004",
                  chain_->rpc().name(), evm::text_of(registry_));
    if (there->validator != asked || there->agent != *agent)
      fail_verify("{}: this manifest's request is agent {}'s to {}: it cannot be asked for again", chain_->rpc().name(),
                  evm::decimal(there->agent), evm::text_of(there->validator));
    if (there->answered) result["response"] = there->response;
    return result;
  }

 private:
  Digest hash() const { return evm::keccak256(read_file(run_.folder + "/manifest.json")); }
  evm::Address validator(const StepContext& c) const {
    const std::string text = c.around.variable(kValidatorVariable);
    if (text.empty())
      fail_missing("publish.evm.validation_registry: set {} to the address of the validator that is asked",
                   kValidatorVariable);
    return evm::address_setting(text, kValidatorVariable);
  }
  static std::string uri(const StepContext& c) {
    for (const char* step : {"ipfs", "lighthouse"})
      if (const Json r = c.result_of(step); r.is_object() && r.contains("cid"))
        return "ipfs://" + r["cid"].get<std::string>() + kManifest;
    if (const Json r = c.result_of("hf"); r.is_object() && r.contains("url"))
      return r["url"].get<std::string>() + "/resolve/main" + kManifest;
    return "";
  }
  std::string call(const StepContext& c, const evm::U256& agent) const {
    return evm::abi_call(kRequest, {V::address(validator(c)), V::number(agent), V::bytes(uri(c)), V::word(hash())});
  }
  // None where the registry knows no such request: the reference contract reverts, others answer zeros.
  std::optional<Status> status() const {
    std::string answer;
    try {
      answer = chain_->rpc().eth_call(registry_, evm::abi_call(kStatus, {V::word(hash())}));
    } catch (const evm::NodeError&) {
      return std::nullopt;
    }
    const evm::AbiReader r(answer, chain_->rpc().name() + ": getValidationStatus");
    Status s;
    s.validator = r.address(0);
    if (s.validator == evm::Address{}) return std::nullopt;
    s.agent = r.number(1);
    const evm::U256 response = r.number(2);
    if (response > 100) fail_input("{}: getValidationStatus: a response above 100", chain_->rpc().name());
    s.response = static_cast<int>(response);
    s.answered = s.response > 0 || r.digest(3) != Digest{} || !r.bytes(4).empty();
    return s;
  }

  const config::EvmPublish& settings_;
  const Run& run_;
  std::unique_ptr<EvmChain> chain_;
  evm::Address registry_;
};

}  // namespace

std::unique_ptr<Step> validation_step(const config::EvmPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<ValidationStep>(s, run, around);
}

}  // namespace mxt::publish
