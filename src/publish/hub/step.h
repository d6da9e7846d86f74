// Publishing to the Hugging Face Hub.
#pragma once

#include <memory>

#include "publish/steps.h"

namespace mxt::publish {

// HF_ENDPOINT, HF_TOKEN (and the token file that the Hub's tools write) come with `around.hub`. Result: {"repo", "url",
// "commit", "files", "sent", "sent_bytes"}.
std::unique_ptr<Step> hub_step(const config::HfPublish& settings, const Run& run, const Surroundings& around);

}  // namespace mxt::publish
