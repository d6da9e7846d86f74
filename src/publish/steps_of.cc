// The one list of destinations.
#include "base/error.h"
#include "publish/evm/agent.h"
#include "publish/evm/anchor.h"
#include "publish/evm/domain.h"
#include "publish/evm/name.h"
#include "publish/evm/token.h"
#include "publish/evm/validation.h"
#include "publish/hub/step.h"
#include "publish/ipfs/steps.h"
#include "publish/register/asset.h"
#include "publish/register/steps.h"
#include "publish/steps.h"

namespace mxt::publish {
namespace {

// Settings that mean nothing without each other.
void require_whole(const config::EvmPublish& e, const std::optional<config::BankonPublish>& name) {
  if (e.inft.has_value() != e.inft_token.has_value())
    fail_input("publish.evm: inft and inft_token belong together: a contract, and its token that stands for the run");
  if ((e.name_wrapper || e.resolver) && (!e.name_wrapper || !name || name->subname.empty()))
    fail_input(
        "publish.evm: name_wrapper, and resolver beside it, are for publish.bankon.subname: set that, or neither");
  if (e.agent_id && !e.identity_registry && !e.validation_registry)
    fail_input("publish.evm.agent_id: is an agent of identity_registry: set that, or leave both out");
}

// What publish.billing reads of it: the key that pays fees, and no asset that stands for the run.
bool is_for_billing_alone(const config::Publish& p) {
  return p.algorand && !p.algorand->asa_id && p.billing && p.billing->x402.network == config::X402Network::kAlgorand;
}

bool names_a_contract(const config::EvmPublish& e) {
  return e.registry || e.identity_registry || e.reputation_registry || e.validation_registry || e.inft ||
         e.name_wrapper;
}

}  // namespace

std::vector<std::unique_ptr<Step>> steps_of(const Run& run, const Surroundings& around,
                                            const std::function<void(const Error&)>& wrong) {
  std::vector<std::unique_ptr<Step>> steps;
  if (!run.recipe.publish) return steps;
  const config::Publish& p = *run.recipe.publish;
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const Error& e) {
      if (!wrong) throw;
      wrong(e);
    }
  };
  const auto add = [&](bool written, const auto& make) {
    if (written) attempt([&] { steps.push_back(make()); });
  };
  if (p.evm) attempt([&] { require_whole(*p.evm, p.bankon); });
  add(p.hf.has_value(), [&] { return hub_step(*p.hf, run, around); });
  add(p.ipfs.has_value(), [&] { return kubo_step(*p.ipfs, run); });
  add(p.lighthouse.has_value(), [&] { return lighthouse_step(*p.lighthouse, run, around); });
  add(p.evm && p.evm->registry, [&] { return anchor_step(*p.evm, run, around); });
  add(p.evm && p.evm->identity_registry, [&] { return agent_step(*p.evm, run, around); });
  add(p.evm && p.evm->validation_registry, [&] { return validation_step(*p.evm, run, around); });
  add(p.evm && p.evm->inft && p.evm->inft_token, [&] { return token_step(*p.evm, run, around); });
  add(p.algorand && !is_for_billing_alone(p), [&] { return asset_step(*p.algorand, run, around); });
  add(p.mindx.has_value(), [&] { return mindx_step(*p.mindx, run, around); });
  add(p.agenticplace.has_value(), [&] { return agenticplace_step(*p.agenticplace, run, around); });
  const bool chain = p.evm && p.evm->name_wrapper;  // by one's own key, instead of BANKON's service
  add(p.bankon && !p.bankon->subname.empty(),
      [&] { return chain ? name_step(*p.evm, *p.bankon, around) : bankon_step(*p.bankon, run, around); });
  // Last: it waits for somebody to put a file on a server, and nothing else shall wait with it.
  add(p.evm && p.evm->identity_registry && !around.variable(kDomainVariable).empty(),
      [&] { return domain_step(*p.evm, run, around); });
  return steps;
}

std::vector<std::string> without_effect(const config::Recipe& r) {
  std::vector<std::string> out;
  if (!r.publish) return out;
  const config::Publish& p = *r.publish;
  if (p.bankon && p.bankon->subname.empty())
    out.emplace_back("publish.bankon: has no subname, so no name is asked for");
  if (p.evm && !names_a_contract(*p.evm))
    out.emplace_back(
        "publish.evm: names no contract (registry, identity_registry …), so nothing is sent to that chain");
  if (p.evm && p.evm->reputation_registry)
    out.emplace_back(
        "publish.evm.reputation_registry: nothing is sent there: nobody gives feedback on an agent of his own");
  if (r.is_given("publish.agenticplace.chain_map_url"))
    out.emplace_back("publish.agenticplace.chain_map_url: not read: a listing names no chain");
  return out;
}

}  // namespace mxt::publish
