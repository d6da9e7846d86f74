// A finished run, verified, and the files of it that are published.
//
// Published layout, the same at every place: the checkpoint's files and README.md at the root, so that tools load it as
// a model; the manifest, its envelope and the rest of the run under provenance/. The dataset is not published.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/stop.h"
#include "config/recipe.h"
#include "publish/ipfs/import.h"

namespace mxt::publish {

struct Run {
  std::string folder;
  config::Recipe recipe;  // the run's own
  Json manifest;
  std::string manifest_digest;   // BLAKE3 that the manifest states of itself, 64 hex digits
  std::vector<TreeEntry> files;  // paths in the published layout, sorted
};

// Errors: kBadInput where there is no run, kVerifyFailed where a byte of it is not what its manifest says: nothing that
// does not hold is published; kInterrupted while it is read.
Run open_run(const std::string& folder, StopFlag stop = nullptr);

// SHA-256 of RUN/manifest.json, hex. Errors: as read_file's.
std::string manifest_sha256(const Run& run);

// The published layout of a run's folder, or what of it is in a published copy (FOLDER/provenance/manifest.json),
// sorted.
std::vector<TreeEntry> published_files(const std::string& manifest_path, StopFlag stop = nullptr);

}  // namespace mxt::publish
