// A vector holds one k of neighbouring rows: one value of x, broadcast, multiplies them all, sums end up one row a
// lane, and nothing is added across lanes. So the order of a sum is the order of k on every instruction set.
#include "kernels/cpu/rows/blocks.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/blocks_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
using DU = hn::RebindToUnsigned<D>;
using U = hn::Vec<DU>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kGroup = static_cast<int>(BlockMatrix::kGroup), kVecs = kGroup / kLanes;

constexpr int kAhead = 4096;  // bytes

// Of a group's block.
constexpr int scale_bytes(BlockKind kind) { return static_cast<int>(BlockMatrix::scale_bytes(kind)) * kGroup; }
constexpr int block_bytes(BlockKind kind) { return static_cast<int>(BlockMatrix::block_bytes(kind)) * kGroup; }
constexpr int words(BlockKind kind) { return (block_bytes(kind) - scale_bytes(kind)) / kGroup / 4; }
constexpr bool is_nibbles(BlockKind kind) { return kind == BlockKind::kQ4 || kind == BlockKind::kQ4F; }
// Words that share scales.
constexpr int words_a_scale(BlockKind kind) { return kind == BlockKind::kQ8F ? words(kind) / 2 : words(kind); }

// 16-bit floats of the rows of vector v.
HWY_INLINE V halves(const std::byte* p, int v) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(D(), hn::BitCast(dh, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p) + v * kLanes)));
}

HWY_INLINE V singles(const std::byte* p, int v) {
  return hn::LoadU(D(), reinterpret_cast<const float*>(p) + v * kLanes);
}

// Scales of the words from j on.
template <BlockKind kKind, int kC>
HWY_INLINE void scales(const std::byte* p, int j, int v0, V (&scale)[kC], V (&least)[kC]) {
  const D d;
  for (int v = 0; v < kC; ++v) {
    scale[v] = least[v] = hn::Zero(d);
    if constexpr (kKind == BlockKind::kQ4) scale[v] = halves(p, v0 + v), least[v] = halves(p + 2 * kGroup, v0 + v);
    if constexpr (kKind == BlockKind::kQ8) scale[v] = hn::Mul(halves(p, v0 + v), hn::Set(d, 0x1p-24f));
    if constexpr (kKind == BlockKind::kQ4F) scale[v] = singles(p, v0 + v), least[v] = singles(p + 4 * kGroup, v0 + v);
    if constexpr (kKind == BlockKind::kQ8F) {
      scale[v] = hn::Mul(singles(p + j / words_a_scale(kKind) * 4 * kGroup, v0 + v), hn::Set(d, 0x1p-24f));
      least[v] = singles(p + 8 * kGroup, v0 + v);
    }
  }
}

HWY_INLINE U word(const std::byte* p, int j, int v) {
  return hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(p) + j * kGroup + v * kLanes);
}

// Nibbles are used where they stand in their word, as 16ⁿq with a scale of 16⁻ⁿ, which is exact: so each costs a mask
// and no shift, and only the highest, where the sign would be, is shifted down. `to(k, value)` takes 32 k in order.
template <BlockKind kKind, int kC, class To>
HWY_INLINE void nibbles(const std::byte* p, int v0, const To& to) {
  const D d;
  const DU du;
  const hn::RebindToSigned<D> di;
  V scale[kC], least[kC], value[kC];
  scales<kKind>(p, 0, v0, scale, least);
  p += scale_bytes(kKind);
  for (int j = 0; j < 4; ++j) {
    for (int v = 0; v < kC; ++v)
      value[v] =
          hn::MulAdd(hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<28>(word(p, j, v0 + v)))), scale[v], least[v]);
    to(j, value);
  }
  U mask = hn::Set(du, 15u);
  for (int k = 4; k < 32; k += 4) {
    for (int j = 0; j < 4; ++j) {
      for (int v = 0; v < kC; ++v)
        value[v] = hn::MulAdd(hn::ConvertTo(d, hn::BitCast(di, hn::And(mask, word(p, j, v0 + v)))), scale[v], least[v]);
      to(k + j, value);
    }
    mask = hn::ShiftLeft<4>(mask);
    for (int v = 0; v < kC; ++v) scale[v] = hn::Mul(scale[v], hn::Set(d, 0x1p-4f));
  }
}

// As `nibbles`, for bytes and bf16, which stand in their words from the highest bits down.
template <BlockKind kKind, int kC, class To>
HWY_INLINE void wider(const std::byte* p, int v0, const To& to) {
  constexpr int kValues = 32 / words(kKind), kBits = 32 / kValues;
  const D d;
  const DU du;
  const hn::RebindToSigned<D> di;
  const U mask = hn::Set(du, ~uint32_t{0} << (32 - kBits));
  V scale[kC], least[kC];
  scales<kKind>(p, 0, v0, scale, least);
  for (int j = 0; j < words(kKind); ++j) {
    if (words_a_scale(kKind) < words(kKind) && j == words_a_scale(kKind)) scales<kKind>(p, j, v0, scale, least);
    U w[kC];
    for (int v = 0; v < kC; ++v) w[v] = word(p + scale_bytes(kKind), j, v0 + v);
    for (int i = 0; i < kValues; ++i) {
      V value[kC];
      for (int v = 0; v < kC; ++v) {
        const U high = hn::And(w[v], mask);
        w[v] = hn::ShiftLeft<kBits>(w[v]);
        if constexpr (kKind == BlockKind::kBF16) {
          value[v] = hn::BitCast(d, high);
        } else {  // 2²⁴q; the scale undoes it
          const V q = hn::ConvertTo(d, hn::BitCast(di, high));
          value[v] = kKind == BlockKind::kQ8 ? hn::Mul(q, scale[v]) : hn::MulAdd(q, scale[v], least[v]);
        }
      }
      to(kValues * j + i, value);
    }
  }
}

template <BlockKind kKind, int kC, class To>
HWY_INLINE void values(const std::byte* p, int v0, const To& to) {
  if constexpr (is_nibbles(kKind))
    nibbles<kKind, kC>(p, v0, to);
  else
    wider<kKind, kC>(p, v0, to);
}

// kM tokens against kC vectors of rows from v0 on.
template <BlockKind kKind, int kM, int kC>
HWY_ATTR void tile(const BlockProduct& c, int v0) {
  constexpr int kPerLine = 64 / (words(kKind) * 4);  // k whose words fill a cache line
  const D d;
  V sum[kM][kC];
  for (int m = 0; m < kM; ++m)
    for (int v = 0; v < kC; ++v) sum[m][v] = hn::Zero(d);
  const std::byte* p = c.group;
  const float* x = c.x;
  for (int64_t b = 0; b < c.blocks; ++b, p += block_bytes(kKind), x += 32) {
    values<kKind, kC>(p, v0, [&](int k, const V(&value)[kC]) HWY_ATTR {
      // The processor's own prefetching ends with each page.
      if (kM == 1 && k % kPerLine == 0) hwy::Prefetch(p + scale_bytes(kKind) + k / kPerLine * 64 + kAhead);
      for (int m = 0; m < kM; ++m) {
        const V a = hn::Set(d, x[m * c.ldx + k]);
        for (int v = 0; v < kC; ++v) sum[m][v] = hn::MulAdd(a, value[v], sum[m][v]);
      }
    });
  }
  for (int m = 0; m < kM; ++m)
    for (int v = 0; v < kC; ++v) hn::StoreU(sum[m][v], d, c.out + m * kGroup + (v0 + v) * kLanes);
}

// One token's sums of all rows, or several tokens' of half of them, fit the registers.
template <BlockKind kKind>
HWY_ATTR void product_of(const BlockProduct& c) {
  constexpr int kAll = kVecs < 4 ? kVecs : 4, kSome = kVecs < 2 ? kVecs : 2;
  for (int v = 0; c.tokens == 1 && v < kVecs; v += kAll) tile<kKind, 1, kAll>(c, v);
  for (int v = 0; c.tokens > 1 && v < kVecs; v += kSome) {
    if (c.tokens == 2) tile<kKind, 2, kSome>(c, v);
    if (c.tokens == 3) tile<kKind, 3, kSome>(c, v);
    if (c.tokens == 4) tile<kKind, 4, kSome>(c, v);
  }
}

template <BlockKind kKind>
HWY_ATTR void decode_of(const BlockDecode& c) {
  const D d;
  constexpr int kC = kVecs < 4 ? kVecs : 4;
  for (int v0 = 0; v0 < kVecs; v0 += kC) {
    const std::byte* p = c.first;
    int64_t at[kC];
    for (int v = 0; v < kC; ++v) at[v] = (v0 + v) * kLanes / 16 * c.strip + (v0 + v) * kLanes % 16;
    float* to = c.to;
    for (int64_t b = 0; b < c.blocks; ++b, p += block_bytes(kKind), to += 32 * c.ld)
      values<kKind, kC>(p, v0, [&](int k, const V(&value)[kC]) HWY_ATTR {
        for (int v = 0; v < kC; ++v) hn::StoreU(value[v], d, to + k * c.ld + at[v]);
      });
  }
}

HWY_ATTR void product(const BlockProduct& c) {
  if (c.kind == BlockKind::kQ4) product_of<BlockKind::kQ4>(c);
  if (c.kind == BlockKind::kQ8) product_of<BlockKind::kQ8>(c);
  if (c.kind == BlockKind::kBF16) product_of<BlockKind::kBF16>(c);
  if (c.kind == BlockKind::kQ4F) product_of<BlockKind::kQ4F>(c);
  if (c.kind == BlockKind::kQ8F) product_of<BlockKind::kQ8F>(c);
}
HWY_ATTR void decode(const BlockDecode& c) {
  if (c.kind == BlockKind::kQ4) decode_of<BlockKind::kQ4>(c);
  if (c.kind == BlockKind::kQ8) decode_of<BlockKind::kQ8>(c);
  if (c.kind == BlockKind::kBF16) decode_of<BlockKind::kBF16>(c);
  if (c.kind == BlockKind::kQ4F) decode_of<BlockKind::kQ4F>(c);
  if (c.kind == BlockKind::kQ8F) decode_of<BlockKind::kQ8F>(c);
}

}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(product);
HWY_EXPORT(decode);

void block_product(const BlockProduct& p) { HWY_DYNAMIC_DISPATCH(product)(p); }
void block_decode(const BlockDecode& p) { HWY_DYNAMIC_DISPATCH(decode)(p); }

}  // namespace mxt::kernels::cpu
#endif
