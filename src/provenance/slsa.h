// The run as SLSA v1 says a build: `buildDefinition` and `runDetails` of a manifest's predicate, for tools that know
// that shape (slsa.dev/spec/v1.0/provenance). They repeat what the manifest says elsewhere and add nothing.
#pragma once

#include "base/json.h"

namespace mxt::provenance {

// `manifest` has its subjects, and predicate.run, identities and environment.
OrderedJson build_definition(const Json& manifest);
OrderedJson run_details(const Json& manifest);

}  // namespace mxt::provenance
