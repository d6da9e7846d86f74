// (left id, right id) → rank of their merge, and rank → id of the merged token. Eight bytes a slot, linear probing, at
// most half full. Most pairs of neighbours have no merge, and the slots are too many for the nearest caches: so a bit
// set that fits there is asked first, and what it lets through may be prefetched before it is looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mxt::tokenizer {

class PairTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kIdBits = 21, kRankBits = 22;
  // merged[rank]: id of the token that the merge makes.
  void build(const std::vector<std::pair<int32_t, int32_t>>& merges, std::vector<int32_t> merged);
  int32_t merged(uint32_t rank) const { return merged_.empty() ? first_ + static_cast<int32_t>(rank) : merged_[rank]; }

  // One look-up in its steps: nothing else is needed where a pair cannot have a merge.
  struct Query {
    uint64_t key, hash;
  };
  static Query query(int32_t a, int32_t b) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(a)) << kIdBits | static_cast<uint32_t>(b);
    return {key, key * 0x9E3779B97F4A7C15ull};
  }
  bool possible(const Query& q) const {
    return possible_[q.hash >> bit_shift_ >> 6] >> (q.hash >> bit_shift_ & 63) & 1;
  }
  void prefetch(const Query& q) const { __builtin_prefetch(&slots_[q.hash >> shift_]); }
  uint32_t find(const Query& q) const {
    for (size_t i = q.hash >> shift_;; i = (i + 1) & mask_) {
      const uint64_t slot = slots_[i];
      if ((slot >> kRankBits) == q.key) return static_cast<uint32_t>(slot & ((1u << kRankBits) - 1));
      if (slot == kEmpty) return kNone;
    }
  }
  uint32_t find(int32_t a, int32_t b) const {
    const Query q = query(a, b);
    return possible(q) ? find(q) : kNone;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  std::vector<uint64_t> slots_, possible_;
  size_t mask_ = 0;
  int shift_ = 63, bit_shift_ = 58;
  std::vector<int32_t> merged_;  // empty where the ids follow the ranks, as trained vocabularies number them
  int32_t first_ = 0;            // then: the first merge's
};

}  // namespace mxt::tokenizer
