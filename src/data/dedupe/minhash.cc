#include "data/dedupe/minhash.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "data/streams.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/dedupe/minhash.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Four vectors of functions at a time: the minima stay in registers while the shingles pass by.
void signature(const uint32_t* x, size_t n, const uint32_t* a, const uint32_t* b, uint32_t* out, size_t functions) {
  const hn::CappedTag<uint32_t, 16> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t k = 0; k < functions; k += 4 * lanes) {
    const auto a0 = hn::LoadU(d, a + k), a1 = hn::LoadU(d, a + k + lanes), a2 = hn::LoadU(d, a + k + 2 * lanes),
               a3 = hn::LoadU(d, a + k + 3 * lanes);
    const auto b0 = hn::LoadU(d, b + k), b1 = hn::LoadU(d, b + k + lanes), b2 = hn::LoadU(d, b + k + 2 * lanes),
               b3 = hn::LoadU(d, b + k + 3 * lanes);
    auto m0 = hn::Set(d, ~uint32_t{0}), m1 = m0, m2 = m0, m3 = m0;
    for (size_t i = 0; i < n; ++i) {
      const auto v = hn::Set(d, x[i]);
      m0 = hn::Min(m0, hn::Add(hn::Mul(v, a0), b0));
      m1 = hn::Min(m1, hn::Add(hn::Mul(v, a1), b1));
      m2 = hn::Min(m2, hn::Add(hn::Mul(v, a2), b2));
      m3 = hn::Min(m3, hn::Add(hn::Mul(v, a3), b3));
    }
    hn::StoreU(m0, d, out + k);
    hn::StoreU(m1, d, out + k + lanes);
    hn::StoreU(m2, d, out + k + 2 * lanes);
    hn::StoreU(m3, d, out + k + 3 * lanes);
  }
}

}  // namespace
}  // namespace mxt::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::data {
namespace {

HWY_EXPORT(signature);
constexpr size_t kBlock = 64;  // four vectors of the widest target

}  // namespace

MinHash::MinHash(int permutations) : permutations_(permutations) {
  MXT_ASSERT(permutations >= 1);
  const size_t padded = (static_cast<size_t>(permutations) + kBlock - 1) / kBlock * kBlock;
  Philox random(0, streams::kMinHash);
  for (size_t i = 0; i < padded; ++i) {
    factor_.push_back(random.next_u32() | 1);
    shift_.push_back(random.next_u32());
  }
}

void MinHash::signature(std::span<const uint32_t> shingles, uint32_t* out) const {
  const size_t whole = static_cast<size_t>(permutations_) / kBlock * kBlock,
               rest = static_cast<size_t>(permutations_) - whole;
  const auto run = HWY_DYNAMIC_DISPATCH(signature);
  run(shingles.data(), shingles.size(), factor_.data(), shift_.data(), out, whole);
  if (rest == 0) return;
  uint32_t last[kBlock];
  run(shingles.data(), shingles.size(), factor_.data() + whole, shift_.data() + whole, last, kBlock);
  std::copy_n(last, rest, out + whole);
}

double Bands::chance(double j) const { return 1 - std::pow(1 - std::pow(j, rows), bands); }

Bands choose_bands(int permutations, double threshold) {
  constexpr int kSteps = 200;
  for (int rows = permutations; rows > 1; --rows) {
    const Bands b{permutations / rows, rows};
    double found = 0;
    for (int i = 0; i < kSteps; ++i) found += b.chance(threshold + (1 - threshold) * (i + 0.5) / kSteps);
    if (found >= 0.98 * kSteps) return b;
  }
  return {permutations, 1};
}

double jaccard(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  size_t i = 0, j = 0, both = 0;
  while (i < a.size() && j < b.size()) {
    const uint32_t x = a[i], y = b[j];
    both += x == y;
    i += x <= y;
    j += y <= x;
  }
  const size_t all = a.size() + b.size() - both;
  return all == 0 ? 1.0 : static_cast<double>(both) / static_cast<double>(all);
}

}  // namespace mxt::data
#endif  // HWY_ONCE
