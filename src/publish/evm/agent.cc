#include "publish/evm/agent.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "evm/abi.h"
#include "publish/evm/chain.h"
#include "publish/evm/domain.h"

namespace mxt::publish {
namespace {

using V = evm::AbiValue;

constexpr const char* kRegister = "register(string,(string,bytes)[])";
constexpr const char* kSetMetadata = "setMetadata(uint256,string,bytes)";
constexpr const char* kGetMetadata = "getMetadata(uint256,string)";
constexpr const char* kRegistered = "Registered(uint256,string,address)";

class AgentStep final : public Step {
 public:
  AgentStep(const config::EvmPublish& s, const Run& run, const Surroundings& around)
      : settings_(s),
        run_(run),
        chain_(std::make_unique<EvmChain>(s, around)),
        registry_(evm::address_setting(*s.identity_registry, "publish.evm.identity_registry")) {}
  std::string name() const override { return "erc8004"; }
  std::string target() const override {
    return chain_target(settings_, registry_) +
           (settings_.agent_id ? fmt::format(" agent {}", *settings_.agent_id) : "");
  }
  void check(const StepContext&) const override { chain_->key(); }

  OrderedJson preview(const StepContext& c) const override {
    OrderedJson j = {{"chain_id", settings_.chain_id}, {"to", evm::text_of(registry_)}};
    j["data"] = evm::hex(settings_.agent_id ? metadata_call(evm::U256(*settings_.agent_id)) : register_call(c));
    if (!settings_.agent_id) j["registration"] = registration_file(c).dump();
    return j;
  }

  Json run(const StepContext& c) const override {
    chain_->require(registry_, "publish.evm.identity_registry");
    Json result = {
        {"chain_id", settings_.chain_id}, {"registry", evm::text_of(registry_)}, {"digest", evm::hex(digest())}};
    evm::U256 id;
    if (settings_.agent_id) {
      id = *settings_.agent_id;
      if (metadata(id) != digest())
        result["tx"] = evm::hex(chain_->send(c, "metadata", registry_, metadata_call(id)).hash);
    } else if (const auto known = registered_before(c)) {
      id = *known;
    } else {
      const evm::Sent sent = chain_->send(c, "register", registry_, register_call(c));
      result["tx"] = evm::hex(sent.hash);
      id = id_in(sent.receipt.logs);
    }
    if (metadata(id) != digest())
      fail_verify("{}: agent {} of {} does not hold the digest that was written", chain_->rpc().name(),
                  evm::decimal(id), evm::text_of(registry_));
    result["agent_id"] = evm::decimal(id);
    return result;
  }

 private:
  std::string digest() const { return *evm::from_hex("0x" + manifest_sha256(run_)); }
  // On the chain itself, so that it needs no other place.
  std::string agent_uri(const StepContext& c) const {
    return "data:application/json;base64," + to_base64(registration_file(c).dump());
  }
  std::string register_call(const StepContext& c) const {
    return evm::abi_call(kRegister,
                         {V::bytes(agent_uri(c)), V::array({V::tuple({V::bytes(kManifestKey), V::bytes(digest())})})});
  }
  std::string metadata_call(const evm::U256& id) const {
    return evm::abi_call(kSetMetadata, {V::number(id), V::bytes(kManifestKey), V::bytes(digest())});
  }
  std::string metadata(const evm::U256& id) const {
    const std::string answer =
        chain_->rpc().eth_call(registry_, evm::abi_call(kGetMetadata, {V::number(id), V::bytes(kManifestKey)}));
    return evm::AbiReader(answer, chain_->rpc().name() + ": getMetadata").bytes(0);
  }
  evm::U256 id_in(const std::vector<evm::Log>& logs) const {
    for (const evm::Log& l : logs)
      if (l.address == registry_ && l.topics.size() == 3 && l.topics[0] == evm::topic(kRegistered))
        return evm::number_of(evm::bytes_of(l.topics[1]));
    fail_verify("{}: the registration left no event: {} is no identity registry of ERC-8004", chain_->rpc().name(),
                evm::text_of(registry_));
  }
  // An attempt under way is followed first; without one, the registry is asked for what this key has registered.
  std::optional<evm::U256> registered_before(const StepContext& c) const {
    if (c.state().is_object()) return std::nullopt;
    const std::string owner = std::string(12, '\0') + evm::bytes_of(chain_->key().address());
    std::vector<evm::Log> logs;
    try {
      logs = chain_->rpc().logs(registry_, {evm::topic(kRegistered), std::nullopt, evm::digest_of(owner)},
                                earliest_trace(run_.manifest));
    } catch (const evm::NodeError&) {
      return std::nullopt;  // a node that keeps no past: what this machine remembers is all there is
    }
    for (const evm::Log& l : logs) {
      const evm::U256 id = evm::number_of(evm::bytes_of(l.topics[1]));
      if (metadata(id) == digest()) return id;
    }
    return std::nullopt;
  }

  const config::EvmPublish& settings_;
  const Run& run_;
  std::unique_ptr<EvmChain> chain_;
  evm::Address registry_;
};

}  // namespace

OrderedJson registration_file(const StepContext& c) {
  OrderedJson services = OrderedJson::array();
  if (const auto domain = domain_root(c.around)) services.push_back({{"name", "web"}, {"endpoint", domain->text()}});
  if (const Json r = c.result_of("hf"); r.is_object() && r.contains("url") && r["url"].is_string())
    services.push_back({{"name", "web"}, {"endpoint", r["url"]}});
  const auto& publish = c.run.recipe.publish;
  const bool paid = publish && publish->billing && publish->billing->x402.pay_to;
  return {{"type", "https://eips.ethereum.org/EIPS/eip-8004#registration-v1"},
          {"name", c.run.recipe.meta.run_name},
          {"description", c.run.recipe.meta.description},
          {"services", services},
          {"x402Support", paid},
          {"active", true},
          {"supportedTrust", OrderedJson::array()}};
}

std::optional<evm::U256> agent_of(const StepContext& c, const config::EvmPublish& s) {
  if (s.agent_id) return evm::U256(*s.agent_id);
  const Json r = c.result_of("erc8004");
  return r.is_object() && r.contains("agent_id") && r["agent_id"].is_string()
             ? evm::parse_decimal(r["agent_id"].get<std::string>())
             : std::nullopt;
}

std::unique_ptr<Step> agent_step(const config::EvmPublish& s, const Run& run, const Surroundings& around) {
  return std::make_unique<AgentStep>(s, run, around);
}

}  // namespace mxt::publish
