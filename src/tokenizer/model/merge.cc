#include "tokenizer/model/merge.h"

#include <algorithm>

#include "tokenizer/model/bpe.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace mxt::tokenizer {
namespace {

constexpr size_t kBlock = 64;
constexpr int kPlaceBits = 6, kBlockBits = 8;
constexpr uint32_t kNever = UINT32_MAX;
static_assert(PairTable::kRankBits + kBlockBits < 32 && Merger::kMost <= (kBlock << kBlockBits));

// n is a multiple of 8.
uint32_t least_plain(const uint32_t* keys, size_t n) {
  uint32_t least = kNever;
  for (size_t i = 0; i < n; ++i) least = std::min(least, keys[i]);
  return least;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) uint32_t least_avx2(const uint32_t* keys, size_t n) {
  const auto at = [keys](size_t i) __attribute__((target("avx2"))) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i)); };
  __m256i v = at(0);
  for (size_t i = 8; i < n; i += 8) v = _mm256_min_epu32(v, at(i));
  __m128i h = _mm_min_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  h = _mm_min_epu32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_min_epu32(h, _mm_shuffle_epi32(h, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(h));
}
const auto least = __builtin_cpu_supports("avx2") ? least_avx2 : least_plain;
#else
const auto least = least_plain;
#endif

size_t rounded(size_t n) { return (n + 7) / 8 * 8; }

}  // namespace

uint32_t* Merger::ranks(size_t n) {
  if (ranks_.size() < n) ranks_.resize(std::max(n, 2 * ranks_.size()));
  return ranks_.data();
}

size_t Merger::merge(int32_t* ids, const uint32_t* ranks, size_t n, const PairTable& pairs, const std::vector<int32_t>& merged) {
  const size_t blocks = (n + kBlock - 1) / kBlock, width = blocks == 1 ? rounded(n) : kBlock, tops = rounded(blocks);
  if (keys_.size() < blocks * kBlock) {
    keys_.resize(blocks * kBlock), tops_.resize(tops);
    next_.resize(blocks * kBlock), previous_.resize(blocks * kBlock);
  }
  uint32_t* keys = keys_.data();
  uint16_t *next = next_.data(), *previous = previous_.data();
  const auto key = [](uint32_t rank, size_t i) { return rank == PairTable::kNone ? kNever : rank << kPlaceBits | static_cast<uint32_t>(i % kBlock); };
  const auto renew = [&](size_t block) {
    const uint32_t k = least(keys + block * kBlock, kBlock);
    tops_[block] = k == kNever ? kNever : k >> kPlaceBits << kBlockBits | static_cast<uint32_t>(block);
  };
  for (size_t i = 0; i < n; ++i) {
    keys[i] = i + 1 < n ? key(ranks[i], i) : kNever;
    next[i] = static_cast<uint16_t>(i + 1), previous[i] = static_cast<uint16_t>(i - 1);
  }
  std::fill(keys + n, keys + (blocks == 1 ? width : blocks * kBlock), kNever);
  if (blocks > 1) {
    std::fill(tops_.begin(), tops_.begin() + static_cast<ptrdiff_t>(tops), kNever);
    for (size_t b = 0; b < blocks; ++b) renew(b);
  }
  size_t left = n;
  for (;;) {
    size_t block = 0;
    if (blocks > 1) {
      const uint32_t top = least(tops_.data(), tops);
      if (top == kNever) break;
      block = top & ((1u << kBlockBits) - 1);
    }
    const uint32_t k = least(keys + block * kBlock, width);
    if (k == kNever) break;
    const size_t i = block * kBlock + (k & (kBlock - 1)), right = next[i], after = next[right];
    ids[i] = merged[k >> kPlaceBits];
    --left;
    next[i] = static_cast<uint16_t>(after);
    keys[right] = kNever;
    if (after < n) previous[after] = static_cast<uint16_t>(i);
    keys[i] = after < n ? key(pairs.find(ids[i], ids[after]), i) : kNever;
    const size_t before = i > 0 ? previous[i] : i;
    if (i > 0) keys[before] = key(pairs.find(ids[before], ids[i]), before);
    if (blocks > 1) {
      renew(block);
      if (right / kBlock != block) renew(right / kBlock);
      if (before / kBlock != block) renew(before / kBlock);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; kept < left; i = next[i]) ids[kept++] = ids[i];
  return left;
}

}  // namespace mxt::tokenizer
