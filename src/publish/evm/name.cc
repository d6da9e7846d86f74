#include "publish/evm/name.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "evm/abi.h"
#include "evm/keccak.h"
#include "publish/evm/chain.h"

namespace mxt::publish {
namespace {

using V = evm::AbiValue;

constexpr const char* kSet = "setSubnodeRecord(bytes32,string,address,address,uint64,uint32,uint64)";

class NameStep final : public Step {
 public:
  NameStep(const config::EvmPublish& s, const config::BankonPublish& name, const Surroundings& around)
      : settings_(s),
        name_(name),
        chain_(std::make_unique<EvmChain>(s, around)),
        wrapper_(evm::address_setting(*s.name_wrapper, "publish.evm.name_wrapper")) {
    require_labels(name);
    if (s.resolver) resolver_ = evm::address_setting(*s.resolver, "publish.evm.resolver");
  }
  std::string name() const override { return "ens"; }
  std::string target() const override { return chain_target(settings_, wrapper_) + " " + full(); }
  void check(const StepContext&) const override { chain_->key(); }

  OrderedJson preview(const StepContext& c) const override {
    OrderedJson j = {{"chain_id", settings_.chain_id},
                     {"to", evm::text_of(wrapper_)},
                     {"name", full()},
                     {"node", evm::hex(namehash(full()))}};
    // The owner is the key's address: without the key there are no bytes yet.
    j["data"] = c.around.variable(settings_.key_env).empty()
                    ? OrderedJson(fmt::format("when {} is set: its address becomes the owner", settings_.key_env))
                    : OrderedJson(evm::hex(call()));
    return j;
  }

  Json run(const StepContext& c) const override {
    chain_->require(wrapper_, "publish.evm.name_wrapper");
    const evm::Address us = chain_->key().address();
    Json result = {{"name", full()}, {"node", evm::hex(namehash(full()))}, {"owner", evm::text_of(us)}};
    evm::Address owner = owner_of();
    if (owner != us && owner != evm::Address{})
      fail_input("{} is {}'s on chain {}: choose another publish.bankon.subname", full(), evm::text_of(owner),
                 settings_.chain_id);
    if (owner != us || c.state().is_object()) {
      result["tx"] = evm::hex(chain_->send(c, "name", wrapper_, call()).hash);
      owner = owner_of();
    }
    if (owner != us)
      fail_verify("{}: {} was set and is {}'s: {} is no NameWrapper", chain_->rpc().name(), full(), evm::text_of(owner),
                  evm::text_of(wrapper_));
    return result;
  }

 private:
  std::string full() const { return name_.subname + "." + name_.ens_parent; }
  // No fuses are burnt and no time to live is set; the wrapper keeps an expiry of its own.
  std::string call() const {
    return evm::abi_call(
        kSet, {V::word(namehash(name_.ens_parent)), V::bytes(name_.subname), V::address(chain_->key().address()),
               V::address(resolver_), V::number(0), V::number(0), V::number(0)});
  }
  evm::Address owner_of() const {
    const std::string answer =
        chain_->rpc().eth_call(wrapper_, evm::abi_call("ownerOf(uint256)", {V::word(namehash(full()))}));
    return evm::AbiReader(answer, chain_->rpc().name() + ": ownerOf").address(0);
  }

  const config::EvmPublish& settings_;
  const config::BankonPublish& name_;
  std::unique_ptr<EvmChain> chain_;
  evm::Address wrapper_, resolver_{};
};

}  // namespace

Digest namehash(const std::string& name) {
  Digest node{};
  const auto labels = split(name, '.');
  for (auto l = labels.rbegin(); l != labels.rend(); ++l)
    node = evm::keccak256(evm::bytes_of(node) + evm::bytes_of(evm::keccak256(*l)));
  return node;
}

bool is_label(const std::string& s) {
  return !s.empty() && s.size() <= 63 && s.front() != '-' && s.back() != '-' &&
         std::all_of(s.begin(), s.end(),
                     [](unsigned char c) { return (c >= 'a' && c <= 'z') || std::isdigit(c) || c == '-'; });
}

void require_labels(const config::BankonPublish& n) {
  if (!is_label(n.subname))
    fail_input("publish.bankon.subname: \"{}\": letters a to z, digits and - are taken", printable(n.subname));
  for (const std::string_view part : split(n.ens_parent, '.'))
    if (!is_label(std::string(part)))
      fail_input("publish.bankon.ens_parent: \"{}\" is no name of such labels", printable(n.ens_parent));
}

std::unique_ptr<Step> name_step(const config::EvmPublish& s, const config::BankonPublish& name,
                                const Surroundings& around) {
  return std::make_unique<NameStep>(s, name, around);
}

}  // namespace mxt::publish
