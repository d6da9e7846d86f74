// Publishing to IPFS: to a node of one's own (Kubo's RPC) or to Lighthouse. The id is computed here first.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

// Sends what the node does not have pinned. Result: {"cid", "profile", "bytes"}.
std::unique_ptr<Step> kubo_step(const config::IpfsPublish& settings, const Run& run);
// Its key: settings.api_key_env; its address: LIGHTHOUSE_ENDPOINT, else upload.lighthouse.storage. How its nodes cut
// files is not stated: the id must be that of one of the profiles, and which one is in the result.
std::unique_ptr<Step> lighthouse_step(const config::LighthousePublish& settings, const Run& run,
                                      const Surroundings& around);

}  // namespace mxt::publish
