// Where every activation lives: offsets in one arena, from the graph alone, before anything is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace mxt::graph {

struct MemoryPlan {
  std::vector<int64_t> offset;             // per value, bytes; −1 for parameters and values that no operation makes
  int64_t bytes = 0;                       // size of the arena
  int64_t lower_bound = 0;                 // the most bytes alive at one operation: no packing can be smaller
  int64_t bytes_at_peak_for_backward = 0;  // of which: kept from the forward pass for the backward
};

// Lifetimes run from the producing operation to the last one that reads the buffer; values that share a buffer
// (same_as) are one. `keep`: values read after the last operation. A buffer that is overwritten in place while another
// operation still reads the old value is a bug and asserts.
MemoryPlan plan_memory(const Graph& g, int64_t tokens, const std::vector<ValueId>& keep);

int64_t value_bytes(const Graph& g, ValueId v, int64_t tokens);

}  // namespace mxt::graph
