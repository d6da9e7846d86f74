// How the manifest protects its own fields: a short digest of each leaf, and one of the whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "provenance/manifest.h"

namespace mxt::provenance {

// A file inside a subject, with a path relative to the run's folder.
struct FileRecord {
  std::string path;
  FileDigests digests;
};

// The digests of a subject that is a folder: of the canonical JSON of its list.
FileDigests list_digests(const std::vector<FileRecord>& files);
FileDigests value_digests(const Json& value);

// JSON pointer of every leaf (a value that is neither a filled object nor a filled array) and 16 hex digits of the
// BLAKE3 of its canonical JSON; predicate.integrity is left out.
std::map<std::string, std::string> leaf_digests(const Json& manifest);
// BLAKE3 of the canonical JSON without /predicate/integrity/blake3.
std::string whole_digest(Json manifest);
// The fields that were edited, each once; empty = the manifest is as it was written.
std::vector<Finding> check_integrity(const Json& manifest);

// The manifest's text as it is written.
std::string manifest_text(const OrderedJson& manifest);

}  // namespace mxt::provenance
