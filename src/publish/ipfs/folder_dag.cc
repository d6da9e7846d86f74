#include "publish/ipfs/folder_dag.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "publish/ipfs/murmur3.h"

namespace mxt::publish {
namespace {

constexpr size_t kPlaces = 256;

// A name's way down the HAMT: one byte of its hash at each level, the most significant first.
struct Placed {
  uint64_t hash = 0;
  const DagLink* entry = nullptr;
  size_t place(int depth) const { return hash >> (56 - 8 * depth) & 255; }
};

std::string place_name(size_t place) { return fmt::format("{:02X}", place); }

// The places that are taken, as one big-endian number without leading zeros.
std::string bitfield_of(const std::array<bool, kPlaces>& taken) {
  std::string bits(kPlaces / 8, '\0');
  for (size_t i = 0; i < kPlaces; ++i)
    if (taken[i]) bits[bits.size() - 1 - i / 8] |= static_cast<char>(1 << (i % 8));
  return bits.substr(std::min(bits.find_first_not_of('\0'), bits.size()));
}

// `names` are sorted by hash, so those of one place stand together.
DagLink make_shard(std::span<const Placed> names, int depth, const UnixFsProfile& profile, const BlockSink& sink) {
  if (depth == 8) fail_input("{}: its name has the hash of another one in its folder: rename it", names[0].entry->name);
  std::vector<DagLink> links;
  std::array<bool, kPlaces> taken{};
  while (!names.empty()) {
    const size_t place = names[0].place(depth);
    size_t n = 1;
    while (n < names.size() && names[n].place(depth) == place) ++n;
    DagLink link = n == 1 ? *names[0].entry : make_shard(names.first(n), depth + 1, profile, sink);
    link.name = place_name(place) + link.name;
    links.push_back(std::move(link));
    taken[place] = true;
    names = names.subspan(n);
  }
  return make_node(links, shard_data(bitfield_of(taken)), profile, sink);
}

uint64_t size_to_compare(const std::vector<DagLink>& entries, const UnixFsProfile& profile) {
  if (profile.shard_by == ShardBy::kBlock) return encode_node(entries, folder_data(), profile.cid_version).size();
  uint64_t bytes = 0;
  for (const DagLink& e : entries) bytes += e.name.size() + e.cid.binary(profile.cid_version).size();
  return bytes;
}

}  // namespace

DagLink make_folder(std::vector<DagLink> entries, const UnixFsProfile& profile, const BlockSink& sink) {
  std::sort(entries.begin(), entries.end(), [](const DagLink& a, const DagLink& b) { return a.name < b.name; });
  if (size_to_compare(entries, profile) <= kShardBytes) return make_node(entries, folder_data(), profile, sink);
  std::vector<Placed> placed;
  for (const DagLink& e : entries) placed.push_back({murmur3_x64_64(e.name), &e});
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.hash < b.hash; });
  return make_shard(placed, 0, profile, sink);
}

}  // namespace mxt::publish
