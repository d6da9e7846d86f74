// Digests of many files.
#pragma once

#include <string>
#include <vector>

#include "base/hash.h"

namespace mxt {

// hash_file() of each, on all threads; two files at a time where the processor takes two SHA-256 at once
// (sha256_lanes.h).
std::vector<FileDigests> hash_files(const std::vector<std::string>& paths);

}  // namespace mxt
