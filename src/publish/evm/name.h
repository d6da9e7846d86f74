// A run's name in ENS: a subname of a wrapped name (NameWrapper.setSubnodeRecord, docs.ens.domains/wrapper), set by who
// owns or operates the parent.
#pragma once

#include <memory>
#include <string>

#include "base/hash.h"
#include "publish/steps.h"

namespace mxt::publish {

// EIP-137, of labels that ENSIP-15 leaves as they are.
Digest namehash(const std::string& name);

// Whether ENSIP-15 leaves a label as it is: a to z, digits and hyphens inside, at most 63; others would have to be
// normalized, and are refused.
bool is_label(const std::string& label);
// kBadInput naming the field of publish.bankon that holds something else.
void require_labels(const config::BankonPublish& name);

// Settings.name_wrapper must be there; the owner is settings' key, the resolver settings.resolver, else none. Result:
// {"name", "node", "owner", "tx"?}. A name that this key owns is not set again; one that another owns is kBadInput.
std::unique_ptr<Step> name_step(const config::EvmPublish& settings, const config::BankonPublish& name,
                                const Surroundings& around);

}  // namespace mxt::publish
