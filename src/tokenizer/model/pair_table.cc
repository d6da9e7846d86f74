#include "tokenizer/model/pair_table.h"

#include <algorithm>
#include <bit>

namespace mxt::tokenizer {

void PairTable::build(const std::vector<std::pair<int32_t, int32_t>>& merges, std::vector<int32_t> merged) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, merges.size() * 2)),
               bits = std::bit_ceil(std::max<size_t>(64, merges.size() * 4));
  slots_.assign(size, kEmpty);
  possible_.assign(bits / 64, 0);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  bit_shift_ = 64 - std::countr_zero(bits);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Query q = query(merges[rank].first, merges[rank].second);
    possible_[q.hash >> bit_shift_ >> 6] |= uint64_t{1} << (q.hash >> bit_shift_ & 63);
    size_t i = q.hash >> shift_;
    while (slots_[i] != kEmpty && (slots_[i] >> kRankBits) != q.key) i = (i + 1) & mask_;
    slots_[i] = q.key << kRankBits | rank;  // a pair that stands twice counts where it stands last
  }
  first_ = merged.empty() ? 0 : merged[0];
  bool in_order = true;
  for (size_t rank = 0; rank < merged.size(); ++rank) in_order &= merged[rank] == first_ + static_cast<int32_t>(rank);
  merged_ = in_order ? std::vector<int32_t>{} : std::move(merged);
}

}  // namespace mxt::tokenizer
