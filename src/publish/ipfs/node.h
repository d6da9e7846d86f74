// Blocks of UnixFS: dag-pb nodes, encoded as ipld.io's DAG-PB wants them (links before data).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "net/ipfs.h"
#include "publish/ipfs/profile.h"

namespace mxt::publish {

// What a parent must know of a child.
struct DagLink {
  net::Cid cid;
  std::string name;         // "" below a file
  uint64_t file_bytes = 0;  // of content
  uint64_t dag_bytes = 0;   // of all its blocks, what dag-pb calls Tsize
};

using BlockSink = std::function<void(const net::Cid& cid, std::string_view block)>;

// UnixFS Data messages (fields in order: Type 1, Data 2, filesize 3, blocksizes 4, hashType 5, fanout 6).
std::string file_leaf_data(std::string_view content);
std::string file_node_data(const std::vector<DagLink>& children);
std::string folder_data();
std::string shard_data(std::string_view bitfield);  // HAMT of 256 places by murmur3-x64-64
std::string link_data(std::string_view target);     // a symbolic link

// A dag-pb block. Links stay in the order given.
std::string encode_node(const std::vector<DagLink>& links, std::string_view data, int cid_version);
net::Cid cid_of(net::Codec codec, std::string_view block);

// Encodes, names and hands out one dag-pb block.
DagLink make_node(const std::vector<DagLink>& links, std::string_view data, const UnixFsProfile& profile,
                  const BlockSink& sink);

}  // namespace mxt::publish
