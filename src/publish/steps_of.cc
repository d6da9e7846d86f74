// The one list of destinations.
#include "base/error.h"
#include "base/log.h"
#include "publish/evm/agent.h"
#include "publish/evm/anchor.h"
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

// What a recipe writes and nothing could be done with is refused, so that nobody takes silence for a success.
void require_whole(const config::Publish& p) {
  if (!p.evm) return;
  if (p.evm->inft.has_value() != p.evm->inft_token.has_value())
    fail_input("publish.evm: inft and inft_token belong together: a contract, and its token that stands for the run");
  if ((p.evm->name_wrapper || p.evm->resolver) && (!p.evm->name_wrapper || !p.bankon || p.bankon->subname.empty()))
    fail_input(
        "publish.evm: name_wrapper, and resolver beside it, are for publish.bankon.subname: set that, or neither");
  if (p.evm->reputation_registry)
    log::warn("publish.evm.reputation_registry: nothing is sent there: nobody gives feedback on an agent of his own");
}

}  // namespace

std::vector<std::unique_ptr<Step>> steps_of(const Run& run, const Surroundings& around) {
  std::vector<std::unique_ptr<Step>> steps;
  if (!run.recipe.publish) return steps;
  const config::Publish& p = *run.recipe.publish;
  require_whole(p);
  if (p.hf) steps.push_back(hub_step(*p.hf, run, around));
  if (p.ipfs) steps.push_back(kubo_step(*p.ipfs, run));
  if (p.lighthouse) steps.push_back(lighthouse_step(*p.lighthouse, run, around));
  if (p.evm && p.evm->registry) steps.push_back(anchor_step(*p.evm, run, around));
  if (p.evm && p.evm->identity_registry) steps.push_back(agent_step(*p.evm, run, around));
  if (p.evm && p.evm->validation_registry) steps.push_back(validation_step(*p.evm, run, around));
  if (p.evm && p.evm->inft && p.evm->inft_token) steps.push_back(token_step(*p.evm, run, around));
  if (p.algorand) steps.push_back(asset_step(*p.algorand, run, around));
  if (p.mindx) steps.push_back(mindx_step(*p.mindx, run, around));
  if (p.agenticplace) steps.push_back(agenticplace_step(*p.agenticplace, run, around));
  if (p.bankon && !p.bankon->subname.empty()) {
    const bool chain = p.evm && p.evm->name_wrapper;  // by one's own key, instead of BANKON's service
    steps.push_back(chain ? name_step(*p.evm, *p.bankon, around) : bankon_step(*p.bankon, run, around));
  }
  return steps;
}

}  // namespace mxt::publish
