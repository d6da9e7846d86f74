// One file's balanced tree, built while its bytes go by.
#pragma once

#include <string_view>
#include <vector>

#include "publish/ipfs/node.h"

namespace mxt::publish {

class FileDag {
 public:
  FileDag(const UnixFsProfile& profile, BlockSink sink) : profile_(profile), sink_(std::move(sink)) {}
  // The next bytes of the file: every call but the last gives a multiple of profile.chunk. Leaves are hashed by all
  // threads.
  void add(std::string_view bytes);
  // The root; nothing may be added after it. A file of one leaf is that leaf, an empty one an empty leaf.
  DagLink finish();

 private:
  void push(size_t level, DagLink link);
  void close(size_t level);

  const UnixFsProfile& profile_;
  BlockSink sink_;
  // Children that wait for a parent, by height; full groups go up at once, so memory is height × links.
  std::vector<std::vector<DagLink>> waiting_;
};

}  // namespace mxt::publish
