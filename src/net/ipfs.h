// Content of IPFS through an HTTP gateway that is not trusted: every block is checked against its content id.
// Sources: specs.ipfs.tech (Trustless Gateway, UnixFS), ipld.io (CAR v1, DAG-PB), multiformats (CID, multihash).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"

namespace mxt::net {

enum class Codec : uint64_t { kRaw = 0x55, kDagPb = 0x70 };

// A content id with a SHA-256 digest; its codec says how the block is to be read.
struct Cid {
  Codec codec = Codec::kRaw;
  std::string digest;  // 32 bytes

  std::string text(int version = 1) const;  // version 1 in base32, "bafk…" or "bafy…"; version 0 of dag-pb, "Qm…"
  std::string binary(int version = 1) const;
  bool holds(std::string_view block) const;
  auto operator<=>(const Cid&) const = default;
};
// Version 0 ("Qm…") or 1 in base32, base58btc or base16. Errors (kBadInput): no content id, a codec other than raw and
// dag-pb, a hash other than SHA-256.
Cid parse_cid(std::string_view text);
// The id at the front of `bytes`, moved past it.
Cid read_binary_cid(std::string_view* bytes);

// One dag-pb block as UnixFS.
struct UnixFsNode {
  enum class Kind { kFile, kDirectory } kind = Kind::kFile;
  std::string data;  // of a file: its own bytes, before those of its links
  struct Link {
    Cid cid;
    std::string name;
  };
  std::vector<Link> links;
};
// Errors (kBadInput): broken encoding, kinds other than file and plain directory.
UnixFsNode parse_unixfs(std::string_view block, std::string_view source);

struct IpfsFile {
  std::string path;  // in the folder of a directory; "" for a file that has no name
  std::string file;  // where it lies
};

// The file or directory `cid` (with a path below it, "CID/dir/rows.jsonl", that part of it), checked, in a folder below
// `cache_dir` that is used again. One CAR is asked for; blocks that it lacks are fetched one by one. Blocks that nobody
// asked for are refused, so a gateway cannot send without end. Errors: kMissing where the gateway cannot be reached or
// does not have the content, kVerifyFailed for a block that is not what its id says, kBadInput.
std::vector<IpfsFile> fetch_ipfs(const HttpOptions& options, const std::string& gateway, const std::string& cid,
                                 const std::string& cache_dir);

}  // namespace mxt::net
