// What this program itself is: for predicate.identities.
#pragma once

#include "base/json.h"

namespace mxt::provenance {

// {"program","program_digest","version","git_commit","compiler"}; git_commit is null where the build had no git, and
// ends in "-dirty" where the tree had changes.
Json build_identity();

}  // namespace mxt::provenance
