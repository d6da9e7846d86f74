// Merges a run of symbols by rank, the leftmost first among equals, until no pair of neighbours has a merge.
//
// Symbols stand in blocks of 64; every pair has a key of rank and place, so that the least key of a block is the next merge there, and
// the least of the blocks' keys is the next of all. A merge changes the keys of at most three blocks: with vector instructions that is
// some twenty operations, less than a heap takes, for any length up to kMost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mxt::tokenizer {

class PairTable;

class Merger {
 public:
  static constexpr size_t kMost = size_t{1} << 14;  // symbols: the blocks' keys are searched one by one
  // ids[0, n) become the ids that remain; returns how many. 1 ≤ n ≤ kMost; ranks[i] is that of symbols i and i + 1.
  size_t merge(int32_t* ids, const uint32_t* ranks, size_t n, const PairTable& pairs, const std::vector<int32_t>& merged);
  uint32_t* ranks(size_t n);  // room for n

 private:
  std::vector<uint32_t> ranks_, keys_, tops_;
  std::vector<uint16_t> next_, previous_;
};

}  // namespace mxt::tokenizer
