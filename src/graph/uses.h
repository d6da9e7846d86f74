// Who makes and who reads each value, and which buffer it lies in: found in one walk over a graph, so that passes look
// things up instead of searching the list of operations again and again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace mxt::graph {

class Uses {
 public:
  explicit Uses(const Graph& g);
  // Index of the operation that makes v; −1: none does (a parameter).
  int32_t maker(ValueId v) const { return maker_[static_cast<size_t>(v)]; }
  // Indices of the operations that read v, ascending; one that reads it twice stands twice.
  std::span<const int32_t> readers(ValueId v) const {
    const auto at = static_cast<size_t>(v);
    return {readers_.data() + first_[at], readers_.data() + first_[at + 1]};
  }
  // The last operation that reads v; −1: none.
  int32_t last(ValueId v) const { return readers(v).empty() ? -1 : readers(v).back(); }

 private:
  std::vector<int32_t> maker_, readers_;
  std::vector<size_t> first_;
};

// Graph::root() of every value, in one walk.
std::vector<ValueId> roots(const Graph& g);

// Roots while a pass puts buffers together: sets of values, each with the value that stands for it.
class Buffers {
 public:
  explicit Buffers(const Graph& g);
  ValueId root(ValueId v) { return name_[static_cast<size_t>(find(v))]; }
  // b's buffer becomes part of a's.
  void unite(ValueId a, ValueId b);
  // v stands for its buffer from now on (what stood for it is gone).
  void rename(ValueId v) { name_[static_cast<size_t>(find(v))] = v; }

 private:
  ValueId find(ValueId v);
  std::vector<ValueId> parent_, name_;
};

}  // namespace mxt::graph
