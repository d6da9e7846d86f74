// Where every activation lives: offsets in one arena, from the graph alone, before anything is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace mxt::graph {

struct MemoryPlan {
  std::vector<int64_t> offset;             // per value, bytes; −1 for parameters and values that no step makes
  int64_t bytes = 0;                       // size of the arena
  int64_t lower_bound = 0;                 // the most bytes alive at one step: no packing can be smaller
  int64_t bytes_at_peak_for_backward = 0;  // of which: kept from the forward pass for the backward
};

// What is read and written at an operation's place: its own operands and results, or also those of operations that one
// kernel computes together with it. These have empty steps, and what lies between them alone is in none.
struct Step {
  std::vector<ValueId> reads, writes;
};
std::vector<Step> steps_of(const Graph& g);  // every operation by itself

// Lifetimes run from the producing step to the last one that reads the buffer; values that share a buffer (alias_of)
// are one. `keep`: values read after the last step. A buffer that is overwritten in place while another step still
// reads the old value is a bug and asserts. `most`: a bound for every size that a batch decides.
MemoryPlan plan_memory(const Graph& g, const std::vector<Step>& steps, const Bounds& most,
                       const std::vector<ValueId>& keep);

int64_t value_bytes(const Graph& g, ValueId v, const Bounds& rows);

}  // namespace mxt::graph
