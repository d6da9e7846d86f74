// Digests of large files, and of many.
#pragma once

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/stop.h"

namespace mxt {

// hash_file() that ends early: kInterrupted between two pieces of it.
FileDigests hash_file(const std::string& path, StopFlag stop);

// hash_file() of each, on all threads; two files at a time where the processor takes two SHA-256 at once
// (sha256_lanes.h).
std::vector<FileDigests> hash_files(const std::vector<std::string>& paths);

}  // namespace mxt
