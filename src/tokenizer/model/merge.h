// Merges runs of symbols by rank, the leftmost first among equals, until no pair of neighbours has a merge.
//
// Every pair has a key of rank and place, so that the least key is the next merge; with vector instructions it is found
// faster than a heap is kept. What takes long is the pair table, which no near cache holds: so many short runs are
// merged in turn, and while one waits for its pair the others go on. Long runs stand in blocks of 64 symbols whose
// least keys are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/model/pair_table.h"

namespace mxt::tokenizer {

// Up to 64 symbols on the way to their tokens.
struct ShortRun {
  static constexpr size_t kMost = 64;
  static constexpr uint32_t kNever = UINT32_MAX;
  static constexpr int kPlaceBits = 6;
  static uint32_t key(uint32_t rank, size_t place) {
    return rank == PairTable::kNone ? kNever : rank << kPlaceBits | static_cast<uint32_t>(place);
  }

  alignas(
      32) uint32_t keys[kMost];  // of symbol i and the one after it; kNever past the last pair, up to a multiple of 8
  int32_t ids[kMost];
  uint64_t left;   // bit i: symbol i still stands
  uint32_t width;  // keys in use, a multiple of 8
  // Look-ups under way: of the symbol just merged with the one after it, and of the one before it with it.
  struct Pending {
    PairTable::Query query;
    uint32_t place;
  };
  Pending pending[2];
  uint32_t waits = 0;
};

// All runs to the end: then ids[0, how many) are the tokens of a run, and `width` says how many. `count` ≥ 1.
void merge_runs(ShortRun* runs, size_t count, const PairTable& pairs);

class LongMerger {
 public:
  static constexpr size_t kMost = size_t{1} << 14;  // symbols: the blocks' keys are searched one by one
  // ids[0, n) become the ids that remain; returns how many. 1 ≤ n ≤ kMost; first[i] is ShortRun::key(rank of symbols i
  // and i + 1, 0).
  size_t merge(int32_t* ids, const uint32_t* first, size_t n, const PairTable& pairs);
  uint32_t* keys(size_t n);  // room for n

 private:
  std::vector<uint32_t> first_, keys_, tops_;
  std::vector<uint16_t> next_, previous_;
};

}  // namespace mxt::tokenizer
