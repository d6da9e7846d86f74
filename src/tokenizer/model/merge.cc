#include "tokenizer/model/merge.h"

#include <algorithm>
#include <bit>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace mxt::tokenizer {
namespace {

constexpr size_t kBlock = 64;
constexpr int kPlaceBits = ShortRun::kPlaceBits, kBlockBits = 8;
constexpr uint32_t kNever = ShortRun::kNever;
static_assert(PairTable::kRankBits + kBlockBits < 32 && LongMerger::kMost <= (kBlock << kBlockBits));

// n is a multiple of 8.
uint32_t least_plain(const uint32_t* keys, size_t n) {
  uint32_t least = kNever;
  for (size_t i = 0; i < n; ++i) least = std::min(least, keys[i]);
  return least;
}

// Bit i: keys[i] has this rank. n is a multiple of 8, at most 64.
uint64_t of_rank_plain(const uint32_t* keys, size_t n, uint32_t rank) {
  uint64_t found = 0;
  for (size_t i = 0; i < n; ++i) found |= uint64_t{keys[i] >> kPlaceBits == rank} << i;
  return found;
}

// One merge, and the next ones for as long as no look-up has to be waited for. False at the end.
template <uint32_t (*kLeast)(const uint32_t*, size_t)>
inline __attribute__((always_inline)) bool advance(ShortRun& r, const PairTable& pairs) {
  for (uint32_t w = 0; w < r.waits; ++w)
    r.keys[r.pending[w].place] = ShortRun::key(pairs.find(r.pending[w].query), r.pending[w].place);
  r.waits = 0;
  for (;;) {
    const uint32_t k = kLeast(r.keys, r.width);
    if (k == kNever) return false;
    const unsigned i = k & (ShortRun::kMost - 1);
    const uint64_t above = r.left & (~uint64_t{1} << i), below = r.left & ((uint64_t{1} << i) - 1);
    const auto right = static_cast<unsigned>(std::countr_zero(above));
    const uint64_t beyond = above & (above - 1);
    r.left ^= uint64_t{1} << right;
    r.keys[right] = kNever;
    r.keys[i] = kNever;
    r.ids[i] = pairs.merged(k >> kPlaceBits);
    const auto ask = [&](unsigned a, unsigned b) __attribute__((always_inline)) {
      const auto q = PairTable::query(r.ids[a], r.ids[b]);
      r.keys[a] = kNever;
      if (!pairs.possible(q)) return;
      pairs.prefetch(q);
      r.pending[r.waits++] = {q, a};
    };
    if (beyond) ask(i, static_cast<unsigned>(std::countr_zero(beyond)));
    if (below) ask(63 - static_cast<unsigned>(std::countl_zero(below)), i);
    if (r.waits > 0) return true;
  }
}

template <uint32_t (*kLeast)(const uint32_t*, size_t)>
inline __attribute__((always_inline)) void merge_all(ShortRun* runs, size_t count, const PairTable& pairs) {
  constexpr size_t kTogether = 32;
  for (; count > 0; runs += std::min(count, kTogether), count -= std::min(count, kTogether)) {
    ShortRun* active[kTogether];
    size_t n = std::min(count, kTogether);
    for (size_t i = 0; i < n; ++i) active[i] = runs + i;
    while (n > 0)
      for (size_t i = 0; i < n;) {
        ShortRun& r = *active[i];
        if (advance<kLeast>(r, pairs)) {
          ++i;
          continue;
        }
        uint32_t kept = 0;
        for (uint64_t m = r.left; m; m &= m - 1) r.ids[kept++] = r.ids[std::countr_zero(m)];
        r.width = kept;
        active[i] = active[--n];
      }
  }
}

void merge_runs_plain(ShortRun* runs, size_t count, const PairTable& pairs) {
  merge_all<least_plain>(runs, count, pairs);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) inline uint32_t least_avx2(const uint32_t* keys, size_t n) {
  const auto at = [keys](size_t i) __attribute__((target("avx2"))) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i));
  };
  __m256i v = at(0);
  for (size_t i = 8; i < n; i += 8) v = _mm256_min_epu32(v, at(i));
  __m128i h = _mm_min_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  h = _mm_min_epu32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_min_epu32(h, _mm_shuffle_epi32(h, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(h));
}
__attribute__((target("avx2"))) uint64_t of_rank_avx2(const uint32_t* keys, size_t n, uint32_t rank) {
  const __m256i want = _mm256_set1_epi32(static_cast<int>(rank));
  uint64_t found = 0;
  for (size_t i = 0; i < n; i += 8) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i));
    const __m256i same = _mm256_cmpeq_epi32(_mm256_srli_epi32(v, kPlaceBits), want);
    found |= uint64_t{static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(same)))} << i;
  }
  return found;
}
__attribute__((target("avx2,bmi,bmi2,lzcnt"))) void merge_runs_avx2(ShortRun* runs, size_t count,
                                                                    const PairTable& pairs) {
  merge_all<least_avx2>(runs, count, pairs);
}
const bool vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
const auto least = vectors ? least_avx2 : least_plain;
const auto of_rank = vectors ? of_rank_avx2 : of_rank_plain;
const auto merge_runs_best = vectors ? merge_runs_avx2 : merge_runs_plain;
#else
const auto least = least_plain;
const auto of_rank = of_rank_plain;
const auto merge_runs_best = merge_runs_plain;
#endif

size_t rounded(size_t n) { return (n + 7) / 8 * 8; }

}  // namespace

void merge_runs(ShortRun* runs, size_t count, const PairTable& pairs) { merge_runs_best(runs, count, pairs); }

uint32_t* LongMerger::keys(size_t n) {
  if (first_.size() < n) first_.resize(std::max(n, 2 * first_.size()));
  return first_.data();
}

size_t LongMerger::merge(int32_t* ids, const uint32_t* first, size_t n, const PairTable& pairs) {
  const size_t blocks = (n + kBlock - 1) / kBlock, width = blocks == 1 ? rounded(n) : kBlock, tops = rounded(blocks);
  if (keys_.size() < blocks * kBlock) {
    keys_.resize(blocks * kBlock), tops_.resize(tops);
    next_.resize(blocks * kBlock), previous_.resize(blocks * kBlock);
  }
  uint32_t* keys = keys_.data();
  uint16_t *next = next_.data(), *previous = previous_.data();
  const auto key = [](uint32_t rank, size_t i) { return ShortRun::key(rank, i % kBlock); };
  const auto renew = [&](size_t block) {
    const uint32_t k = least(keys + block * kBlock, kBlock);
    tops_[block] = k == kNever ? kNever : k >> kPlaceBits << kBlockBits | static_cast<uint32_t>(block);
  };
  for (size_t i = 0; i < n; ++i) {
    keys[i] = i + 1 < n ? first[i] | static_cast<uint32_t>(i % kBlock) : kNever;
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
    const uint32_t low = least(keys + block * kBlock, width), rank = low >> kPlaceBits;
    if (low == kNever) break;
    // The block's merges of this rank one after another: what repeats is searched once. A pair that comes up meanwhile
    // has another rank; where it is lower, it is next.
    bool lower = false;
    for (uint64_t m = of_rank(keys + block * kBlock, width, rank); m && !lower; m &= m - 1) {
      const size_t i = block * kBlock + static_cast<size_t>(std::countr_zero(m));
      if (keys[i] >> kPlaceBits != rank) continue;  // its first symbol has just become part of another
      const size_t right = next[i], after = next[right];
      ids[i] = pairs.merged(rank);
      --left;
      next[i] = static_cast<uint16_t>(after);
      keys[right] = kNever;
      if (after < n) previous[after] = static_cast<uint16_t>(i);
      const auto ask = [&](size_t a, size_t b) {
        keys[a] = key(pairs.find(ids[a], ids[b]), a);
        lower |= keys[a] < low;
      };
      keys[i] = kNever;
      if (after < n) ask(i, after);
      const size_t before = i > 0 ? previous[i] : i;
      if (i > 0) ask(before, i);
      if (blocks > 1 && right / kBlock != block) renew(right / kBlock);
      if (blocks > 1 && before / kBlock != block) renew(before / kBlock);
    }
    if (blocks > 1) renew(block);
  }
  size_t kept = 0;
  for (size_t i = 0; kept < left; i = next[i]) ids[kept++] = ids[i];
  return left;
}

}  // namespace mxt::tokenizer
