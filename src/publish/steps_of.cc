// The one list of destinations.
#include "publish/evm/anchor.h"
#include "publish/hub/step.h"
#include "publish/ipfs/steps.h"
#include "publish/steps.h"

namespace mxt::publish {

std::vector<std::unique_ptr<Step>> steps_of(const Run& run, const Surroundings& around) {
  std::vector<std::unique_ptr<Step>> steps;
  if (!run.recipe.publish) return steps;
  const config::Publish& p = *run.recipe.publish;
  if (p.hf) steps.push_back(hub_step(*p.hf, run, around));
  if (p.ipfs) steps.push_back(kubo_step(*p.ipfs, run));
  if (p.lighthouse) steps.push_back(lighthouse_step(*p.lighthouse, run, around));
  if (p.evm && p.evm->registry) steps.push_back(anchor_step(*p.evm, run, around));
  return steps;
}

}  // namespace mxt::publish
