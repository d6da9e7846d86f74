// From files to content ids, in one pass over their bytes whatever the number of profiles.
#pragma once

#include <string>
#include <vector>

#include "base/stop.h"
#include "publish/ipfs/node.h"

namespace mxt::publish {

// One thing below the root. Folders that hold something need no entry of their own.
struct TreeEntry {
  enum class Kind { kFile, kText, kFolder, kLink } kind = Kind::kFile;
  std::string path;  // below the root, "a/b.txt"; "" = the root itself is this file or empty folder
  std::string
      source;  // of a file: where it lies; of a text, a file that lies nowhere: its bytes; of a link: its target
};

struct TreeListing {
  std::vector<TreeEntry> entries;  // sorted by path
  size_t hidden = 0;               // left out, folders counted once
};

// What `path` (a file or folder) holds, as `ipfs add -r` sees it: hidden entries only where asked for, symbolic links
// below it as links, empty folders too. Errors (kBadInput): not there, devices, names that are not UTF-8.
TreeListing list_tree(const std::string& path, bool hidden);

struct DagRoot {
  const UnixFsProfile* profile = nullptr;
  net::Cid cid;
  uint64_t file_bytes = 0, dag_bytes = 0;
  std::string text() const { return cid.text(profile->cid_version); }
};

// One root for each profile, in their order. `sink`, where set, sees the blocks of the first profile, children before
// parents, a block perhaps more than once. Errors (kBadInput): a file that cannot be read, paths that contradict each
// other ("a" and "a/b").
std::vector<DagRoot> import_tree(const std::vector<TreeEntry>& entries,
                                 const std::vector<const UnixFsProfile*>& profiles, const BlockSink& sink = {},
                                 StopFlag stop = nullptr);

}  // namespace mxt::publish
