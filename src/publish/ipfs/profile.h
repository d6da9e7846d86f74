// How bytes become an IPFS content id: the same bytes have as many ids as there are ways to cut and encode them.
// Source: IPIP-499 (named profiles), and what an unconfigured Kubo does with `--cid-version=1`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace mxt::publish {

enum class ShardBy { kLinks, kBlock };  // what is measured against kShardBytes: Σ(name + id), or the encoded folder

struct UnixFsProfile {
  std::string_view name;
  int cid_version = 1;
  bool raw_leaves = true;  // false: each leaf is a dag-pb node with UnixFS data
  uint64_t chunk = 0;      // bytes of a leaf
  uint64_t links = 0;      // of a file's inner node
  ShardBy shard_by = ShardBy::kLinks;
};

inline constexpr uint64_t kShardBytes = 262'144;  // a folder above it becomes a HAMT
inline constexpr std::string_view kDefaultProfile = "kubo-v1";

std::span<const UnixFsProfile> unixfs_profiles();
// Errors (kBadInput): no such name; the message begins with `place` and lists them.
const UnixFsProfile& unixfs_profile(std::string_view name, std::string_view place = "");

}  // namespace mxt::publish
