#include "kernels/cpu/attention/tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

HWY_INLINE V load(const float* p) { return hn::LoadU(D(), p); }
HWY_INLINE V load(const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), p))));
}
HWY_INLINE void store(V v, float* p) { hn::StoreU(v, D(), p); }
HWY_INLINE void store(V v, uint16_t* p) {  // to nearest, ties to even
  const hn::RebindToUnsigned<D> du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto r = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(du, 0x7fff)), odd));
  hn::StoreU(hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), r)),
             hn::Rebind<uint16_t, D>(), p);
}
inline float load_one(const float* p) { return *p; }
inline float load_one(const uint16_t* p) { return bf16_to_float(*p); }
inline void store_one(float v, float* p) { *p = v; }
inline void store_one(float v, uint16_t* p) { *p = float_to_bf16(v); }

// 2^x for x ≤ 127, to two units in the last place; below −126 the smallest normal number. With x = i + r, |r| ≤ ½, 2^r
// is its Taylor polynomial (remainder under 1e-8). What is no number stays none.
HWY_INLINE V exp2(V given) {
  const D d;
  const V x = hn::Max(given, hn::Set(d, -126.0f));
  const V i = hn::Round(x), r = hn::Sub(x, i);
  V p = hn::Set(d, 1.5252734e-5f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.5403530e-4f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.3333558e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.6181291e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.5504109e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.4022651e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.9314718e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const hn::RebindToSigned<D> di;
  const V power = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::ConvertTo(di, i))));
  return hn::IfThenElse(hn::IsNaN(given), given, power);
}

// Lanes [c, c + N) that lie in [first, last).
HWY_INLINE hn::Mask<D> between(int64_t c, int64_t first, int64_t last) {
  const D d;
  const V at = hn::Iota(d, static_cast<float>(c));
  return hn::And(hn::Ge(at, hn::Set(d, static_cast<float>(first))), hn::Lt(at, hn::Set(d, static_cast<float>(last))));
}

template <typename T>
HWY_ATTR void softmax_rows(const SoftmaxTile& t) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = (t.cols + 15) / 16 * 16;
  const V low = hn::Set(d, -INFINITY);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t query = t.first_query + (t.same_query ? 0 : r);
    const int64_t last = std::min(t.cols, query - t.first_key + 1);
    const int64_t first = t.window > 0 ? std::max<int64_t>(0, query - t.window + 1 - t.first_key) : 0;
    const float* s = t.s + r * t.ld;
    T* p = static_cast<T*>(t.p) + r * t.ld;
    if (first >= last) {
      for (int64_t c = 0; c < width; c += lanes) store(hn::Zero(d), p + c);
      continue;
    }
    // Columns outside [begin, end) are zero; only the vectors at the two ends need a mask.
    const int64_t begin = first / lanes * lanes, end = std::min(width, (last + lanes - 1) / lanes * lanes);
    V top = low;
    for (int64_t c = begin; c < end; c += lanes) {
      const bool inside = c >= first && c + lanes <= last;
      top = hn::Max(top, inside ? load(s + c) : hn::IfThenElse(between(c, first, last), load(s + c), low));
    }
    const float before = t.top[r], now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, top)));
    const V shift = hn::Set(d, now);
    V sum = hn::Zero(d);
    for (int64_t c = 0; c < begin; c += lanes) store(hn::Zero(d), p + c);
    for (int64_t c = begin; c < end; c += lanes) {
      V e = exp2(hn::Sub(load(s + c), shift));
      if (c < first || c + lanes > last) e = hn::IfThenElseZero(between(c, first, last), e);
      sum = hn::Add(sum, e);
      store(e, p + c);
    }
    for (int64_t c = end; c < width; c += lanes) store(hn::Zero(d), p + c);
    const float total = hn::GetLane(hn::SumOfLanes(d, sum));
    if (now > before && before > -INFINITY) {
      const V scale = exp2(hn::Set(d, before - now));
      for (int64_t panel = 0; panel < t.panels; ++panel) {
        float* out = t.out + (panel * t.tile_rows + r) * kPanel;
        for (int64_t c = 0; c < kPanel; c += lanes) store(hn::Mul(load(out + c), scale), out + c);
      }
      t.sum[r] *= hn::GetLane(scale);
    }
    t.top[r] = now;
    t.sum[r] += total;
  }
}

template <typename T>
HWY_ATTR void grad_rows(const GradTile& t) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = (t.queries + 15) / 16 * 16;
  for (int64_t r = 0; r < t.keys; ++r) {
    const int64_t key = t.first_key + r - t.first_query;  // the first column that sees it
    const int64_t first = std::max<int64_t>(0, key);
    const int64_t last = t.window > 0 ? std::min(t.queries, key + t.window) : t.queries;
    T *p = static_cast<T*>(t.p) + r * t.ld, *ds = static_cast<T*>(t.ds) + r * t.ld;
    for (int64_t c = 0; c < width; c += lanes) {
      V weight = hn::Zero(d), grad = hn::Zero(d);
      if (c < last && c + lanes > first) {
        weight = exp2(hn::Sub(load(t.st + r * t.ld + c), load(t.lse2 + c)));
        grad = hn::Mul(weight, hn::Sub(load(t.dpt + r * t.ld + c), load(t.delta + c)));
        if (c < first || c + lanes > last) {
          const auto seen = between(c, first, last);
          weight = hn::IfThenElseZero(seen, weight), grad = hn::IfThenElseZero(seen, grad);
        }
      }
      store(weight, p + c);
      store(grad, ds + c);
    }
  }
}

template <typename T>
HWY_ATTR void store_rows_as(const StoreRows& t) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < t.rows; ++r) {
    const float factor = t.factors ? t.factor * t.factors[r] : t.factor;
    T* to = static_cast<T*>(t.to) + r * t.ld;
    for (int64_t c0 = 0; c0 < t.cols; c0 += kPanel) {
      const float* from = t.from + (c0 / kPanel * t.tile_rows + r) * kPanel;
      const int64_t n = std::min(kPanel, t.cols - c0);
      int64_t c = 0;
      for (; c + lanes <= n; c += lanes) store(hn::Mul(load(from + c), hn::Set(d, factor)), to + c0 + c);
      for (; c < n; ++c) store_one(from[c] * factor, to + c0 + c);
    }
  }
}

template <typename T>
HWY_ATTR void row_dots_of(const T* a, int64_t lda, const T* b, int64_t ldb, int64_t rows, int64_t cols, float* out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, a += lda, b += ldb) {
    V sum = hn::Zero(d);
    int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) sum = hn::MulAdd(load(a + c), load(b + c), sum);
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < cols; ++c) total += load_one(a + c) * load_one(b + c);
    out[r] = total;
  }
}

HWY_ATTR void softmax(const SoftmaxTile& t) { t.bf16 ? softmax_rows<uint16_t>(t) : softmax_rows<float>(t); }
HWY_ATTR void grad(const GradTile& t) { t.bf16 ? grad_rows<uint16_t>(t) : grad_rows<float>(t); }
HWY_ATTR void store_all(const StoreRows& t) { t.bf16 ? store_rows_as<uint16_t>(t) : store_rows_as<float>(t); }
HWY_ATTR void dots(const void* a, int64_t lda, const void* b, int64_t ldb, bool bf16, int64_t rows, int64_t cols,
                   float* out) {
  if (bf16)
    row_dots_of(static_cast<const uint16_t*>(a), lda, static_cast<const uint16_t*>(b), ldb, rows, cols, out);
  else
    row_dots_of(static_cast<const float*>(a), lda, static_cast<const float*>(b), ldb, rows, cols, out);
}

}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(softmax);
HWY_EXPORT(grad);
HWY_EXPORT(store_all);
HWY_EXPORT(dots);

void softmax_tile(const SoftmaxTile& t) { HWY_DYNAMIC_DISPATCH(softmax)(t); }
void grad_tile(const GradTile& t) { HWY_DYNAMIC_DISPATCH(grad)(t); }
void store_rows(const StoreRows& t) { HWY_DYNAMIC_DISPATCH(store_all)(t); }
void row_dots(const void* a, int64_t lda, const void* b, int64_t ldb, bool bf16, int64_t rows, int64_t cols,
              float* out) {
  HWY_DYNAMIC_DISPATCH(dots)(a, lda, b, ldb, bf16, rows, cols, out);
}

void TileKernels::copy_rows(const void* from, int64_t ld, int64_t rows, int64_t d, void* to) const {
  for (int64_t r = 0; r < rows; ++r) {
    const auto* row = static_cast<const uint16_t*>(from) + r * ld;
    if (unit == Unit::kBf16Widened) {
      for (int64_t c = 0; c < d; ++c) static_cast<float*>(to)[r * d + c] = bf16_to_float(row[c]);
    } else {
      auto* out = static_cast<uint16_t*>(to) + r * (d + 1);  // odd d
      std::memcpy(out, row, static_cast<size_t>(d) * 2);
      out[d] = 0;
    }
  }
}

void TileKernels::pack(const void* p, int64_t ld, bool k_contiguous, int64_t count, int64_t k, uint32_t* to) const {
  for (int64_t i = 0; i < count; i += kPanel) {
    PackCall c;
    c.p = static_cast<const char*>(p) + (k_contiguous ? i * ld : i) * size();
    c.ld = ld, c.k_contiguous = k_contiguous, c.count = std::min(kPanel, count - i), c.width = panel_width(c.count);
    c.k = k, c.to = to;
    micro->pack(c);
    to += steps(k) * kPanel;
  }
}

}  // namespace mxt::kernels::cpu
#endif
