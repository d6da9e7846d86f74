// Registers that are told of a published run over HTTP: mindX's agents, AgenticPlace's listings, BANKON's names.
//
// None of them has a way to ask whether it was told already: a step that is done is not done again, and every request
// carries an Idempotency-Key that follows from the manifest, so that a lost answer can be asked for again.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

// Addresses: the settings', else MINDX_API_URL, AGENTICPLACE_URL and BANKON_ENS_URL where they are set.
std::unique_ptr<Step> mindx_step(const config::MindxPublish& settings, const Run& run, const Surroundings& around);
std::unique_ptr<Step> agenticplace_step(const config::AgenticPlacePublish& settings, const Run& run,
                                        const Surroundings& around);
// Result: {"name", "tx"}; a name other than what was asked for is kVerifyFailed.
std::unique_ptr<Step> bankon_step(const config::BankonPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
