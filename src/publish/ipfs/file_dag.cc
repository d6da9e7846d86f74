#include "publish/ipfs/file_dag.h"

#include <algorithm>

#include "base/threads.h"

namespace mxt::publish {
namespace {

struct Leaf {
  DagLink link;
  std::string block;  // where it is not the content itself
};

Leaf make_leaf(std::string_view content, const UnixFsProfile& p) {
  Leaf leaf;
  if (p.raw_leaves) {
    leaf.link = {cid_of(net::Codec::kRaw, content), "", content.size(), content.size()};
  } else {
    leaf.block = encode_node({}, file_leaf_data(content), p.cid_version);
    leaf.link = {cid_of(net::Codec::kDagPb, leaf.block), "", content.size(), leaf.block.size()};
  }
  return leaf;
}

}  // namespace

void FileDag::push(size_t level, DagLink link) {
  if (waiting_.size() <= level) waiting_.resize(level + 1);
  waiting_[level].push_back(std::move(link));
  if (waiting_[level].size() == profile_.links) close(level);
}

void FileDag::close(size_t level) {
  std::vector<DagLink> children = std::move(waiting_[level]);
  waiting_[level].clear();
  push(level + 1, make_node(children, file_node_data(children), profile_, sink_));
}

void FileDag::add(std::string_view bytes) {
  const size_t n = (bytes.size() + profile_.chunk - 1) / profile_.chunk;
  std::vector<Leaf> leaves(n);
  const auto piece = [&](size_t i) { return bytes.substr(i * profile_.chunk, profile_.chunk); };
  parallel_for(0, static_cast<int64_t>(n), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      leaves[i] = make_leaf(piece(i), profile_);
  });
  for (size_t i = 0; i < n; ++i) {
    if (sink_) sink_(leaves[i].link.cid, profile_.raw_leaves ? piece(i) : std::string_view(leaves[i].block));
    push(0, std::move(leaves[i].link));
  }
}

DagLink FileDag::finish() {
  if (waiting_.empty()) {
    Leaf leaf = make_leaf("", profile_);
    if (sink_) sink_(leaf.link.cid, leaf.block);
    return leaf.link;
  }
  for (size_t level = 0;; ++level) {
    const bool top = level + 1 == waiting_.size();
    if (top && waiting_[level].size() == 1) return waiting_[level][0];
    if (!waiting_[level].empty()) close(level);
  }
}

}  // namespace mxt::publish
