// What is to be known of an operation beside its attributes. Each is defined in ops/NAME.cc, where its builder and its
// derivative stand; passes ask for a role and name no operation.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace mxt::graph {

class Backward;

// How much of what a pass reads: sizes that costs are counted with.
struct PassSize {
  double tokens = 1, document = 1;  // of a pass; of a document
  double targets = 1;               // tokens that are trained on
};

// Whether an activation that it makes can be made again in the backward pass.
enum class Repeat : uint8_t {
  kNo,
  kYes,
  kCheap,  // and costs little beside what it reads: norms, activation functions
};

// What a product contracts of a weight: its columns (y = x wᵀ), its rows (dx = dy w), or, in one operation, both where
// a gradient is among its results.
enum class WeightUse : uint8_t { kColumns, kRows, kBoth };

struct OpInfo {
  std::string_view name;
  // Appends the derivative; null: there is none, nothing that trains may stand before it.
  void (*derive)(Backward& b, const Op& op) = nullptr;
  Repeat repeat = Repeat::kNo;
  // Operands, from the first on, whose memory the first result may take where nothing reads them later.
  int overwrites = 0;
  // Floating-point operations of its products in one pass; null: none, it only moves memory.
  double (*products)(const Graph& g, const Op& op, const PassSize& size) = nullptr;
  // The operand that is a weight of products, −1: none; and how they read it.
  int weight = -1;
  WeightUse weight_use = WeightUse::kColumns;
};

// What of an operation keeps several documents from going on from one that they share, as answers do from their prompt:
// it carries something from token to token beside attention, draws for each row, or counts rows. Empty: nothing.
std::string_view parts_documents(const Op& op);

// Products of a pass: matrices and attention, not what only moves memory. What is made again is not counted: clones
// stand in the backward part.
double products_of(const Graph& g, const PassSize& size);

}  // namespace mxt::graph
