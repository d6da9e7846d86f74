// The one list of destinations.
#include "base/log.h"
#include "publish/evm/agent.h"
#include "publish/evm/anchor.h"
#include "publish/hub/step.h"
#include "publish/ipfs/steps.h"
#include "publish/register/steps.h"
#include "publish/steps.h"

namespace mxt::publish {
namespace {

// What a recipe may name and nothing here publishes to yet: said, so that nobody takes silence for a success.
void say_unbuilt(const config::Publish& p) {
  const auto said = [](const char* key) { log::warn("publish.{}: this build publishes nothing there", key); };
  if (p.algorand) said("algorand");
  if (!p.evm) return;
  if (p.evm->inft || p.evm->inft_token) said("evm.inft");
  if (p.evm->name_wrapper || p.evm->resolver) said("evm.name_wrapper");
  if (p.evm->validation_registry) said("evm.validation_registry");
}

}  // namespace

std::vector<std::unique_ptr<Step>> steps_of(const Run& run, const Surroundings& around) {
  std::vector<std::unique_ptr<Step>> steps;
  if (!run.recipe.publish) return steps;
  const config::Publish& p = *run.recipe.publish;
  say_unbuilt(p);
  if (p.hf) steps.push_back(hub_step(*p.hf, run, around));
  if (p.ipfs) steps.push_back(kubo_step(*p.ipfs, run));
  if (p.lighthouse) steps.push_back(lighthouse_step(*p.lighthouse, run, around));
  if (p.evm && p.evm->registry) steps.push_back(anchor_step(*p.evm, run, around));
  if (p.evm && p.evm->identity_registry) steps.push_back(agent_step(*p.evm, run, around));
  if (p.mindx) steps.push_back(mindx_step(*p.mindx, run, around));
  if (p.agenticplace) steps.push_back(agenticplace_step(*p.agenticplace, run, around));
  if (p.bankon && !p.bankon->subname.empty()) steps.push_back(bankon_step(*p.bankon, run, around));
  return steps;
}

}  // namespace mxt::publish
