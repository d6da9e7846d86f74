#include "publish/ipfs/profile.h"

#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace mxt::publish {
namespace {

constexpr std::array<UnixFsProfile, 3> kProfiles = {{
    {"kubo-v1", 1, true, 262'144, 174, ShardBy::kLinks},
    {"unixfs-v1-2025", 1, true, 1'048'576, 1024, ShardBy::kBlock},
    {"unixfs-v0-2015", 0, false, 262'144, 174, ShardBy::kLinks},
}};

}  // namespace

std::span<const UnixFsProfile> unixfs_profiles() { return kProfiles; }

const UnixFsProfile& unixfs_profile(std::string_view name, std::string_view place) {
  std::string known;
  for (const UnixFsProfile& p : kProfiles) {
    if (p.name == name) return p;
    known += (known.empty() ? "" : ", ") + std::string(p.name);
  }
  fail_input("{}\"{}\" is no profile of content ids; there are {}", place, printable(name.substr(0, 60)), known);
}

}  // namespace mxt::publish
