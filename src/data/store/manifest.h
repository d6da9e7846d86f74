// `dataset.json`: what a prepared folder holds, from what it was made, and the digests that prove it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare.h"

namespace mxt::data {

inline constexpr const char* kManifestName = "dataset.json";

struct ShardFile {
  std::string name;  // relative to the folder, "train-00001-of-00002.safetensors"
  uint64_t bytes = 0;
  std::string blake3;
};

struct Part {
  PartInfo info;
  std::vector<ShardFile> files;
};

struct Manifest {
  std::string key;     // digest of all inputs: sources, settings, tokenizer, template
  std::string inputs;  // those inputs as JSON text
  bool windows = false;
  bool joined = false;    // data.boundaries: row
  bool overlaps = false;  // rows of up to seq_len + 1 tokens, the last a target alone
  int64_t seq_len = 0;
  Prepared counts;  // train and eval repeat the parts' figures
  Part train;
  std::optional<Part> eval;
  const Part* part(std::string_view name) const;  // "train" or "eval"; null where absent
};

std::string part_file_name(std::string_view part, size_t i, size_t n);

void write_manifest(const std::string& folder, const Manifest& m);
// Errors (kBadInput): no manifest, or one that this version cannot read.
Manifest read_manifest(const std::string& folder);
bool has_manifest(const std::string& folder);

// "" where every file is there with its size (and digest, if `digests`); else what is wrong.
std::string check_files(const std::string& folder, const Part& part, bool digests);

}  // namespace mxt::data
