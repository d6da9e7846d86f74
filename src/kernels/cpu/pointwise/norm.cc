#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/norm.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void norm_row(const Norm& n, int64_t t, const float* w, const float* b) {
  const int64_t width = n.x.cols;
  const T* x = row_at<T>(n.x, t);
  T* y = row_at<T>(n.y, t);
  const T* r = n.r.p ? row_at<T>(n.r, t) : nullptr;
  T* h = r ? row_at<T>(n.h, t) : nullptr;
  const float inv_width = 1.0f / static_cast<float>(width);
  float mean = 0;
  Sum squares;
  if (r) {
    const TwoSums s = reduce<TwoSums>(width, [&](int64_t i, auto part, TwoSums& acc) HWY_ATTR {
      const V v = rounded_as(hn::Add(load(x + i, part), load(r + i, part)), x);
      store(v, h + i, part);
      acc.a.v = hn::Add(acc.a.v, v);
      acc.b.v = hn::MulAdd(v, v, acc.b.v);
    });
    x = h;
    mean = n.layer_norm ? s.a.total() * inv_width : 0.0f;
    squares = s.b;
  } else if (n.layer_norm) {
    mean = inv_width * reduce<Sum>(width, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
                         acc.v = hn::Add(acc.v, load(x + i, part));
                       }).total();
  }
  if (n.layer_norm || !r) {  // the variance needs the mean first: E[x²] − mean² would cancel
    const V m = splat(mean);
    squares = reduce<Sum>(width, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
      const V c = keep(hn::Sub(load(x + i, part), m), part);
      acc.v = hn::MulAdd(c, c, acc.v);
    });
  }
  const float rstd = 1.0f / std::sqrt(squares.total() * inv_width + n.eps);
  if (n.rstd) n.rstd[t] = rstd;
  if (n.mean && n.layer_norm) n.mean[t] = mean;
  const V m = splat(mean), s = splat(rstd);
  if (n.layer_norm) {
    for_each(width, [&](int64_t i, auto part) HWY_ATTR {
      const V xhat = hn::Mul(hn::Sub(load(x + i, part), m), s);
      store(hn::MulAdd(xhat, load(w + i, part), load(b + i, part)), y + i, part);
    });
  } else {
    for_each(width, [&](int64_t i, auto part)
                        HWY_ATTR { store(hn::Mul(hn::Mul(load(x + i, part), s), load(w + i, part)), y + i, part); });
  }
}

void norm_rows(const Norm& n, int64_t begin, int64_t end, const float* w, const float* b) {
  for (int64_t t = begin; t < end; ++t)
    n.x.type == DType::kF32 ? norm_row<float>(n, t, w, b) : norm_row<uint16_t>(n, t, w, b);
}

// One row of dx; dw and db (where wanted) are added into the piece's partial sums.
template <typename T, bool kLayerNorm>
void norm_grad_row(const NormGrad& n, int64_t t, const float* w, float* dw, float* db) {
  const int64_t width = n.x.cols;
  const T* x = row_at<T>(n.x, t);
  const T* dy = row_at<T>(n.dy, t);
  const T* dres = n.dres.p ? row_at<T>(n.dres, t) : nullptr;
  T* dx = row_at<T>(n.dx, t);
  const V m = splat(kLayerNorm ? n.mean[t] : 0.0f), rstd = splat(n.rstd[t]);
  auto xhat_at = [&](int64_t i, auto part) HWY_ATTR {
    const V v = load(x + i, part);
    return hn::Mul(kLayerNorm ? hn::Sub(v, m) : v, rstd);
  };
  const TwoSums s = reduce<TwoSums>(width, [&](int64_t i, auto part, TwoSums& acc) HWY_ATTR {
    const V g = load(dy + i, part), xhat = xhat_at(i, part), gw = hn::Mul(g, load(w + i, part));
    if constexpr (kLayerNorm) acc.a.v = hn::Add(acc.a.v, gw);
    acc.b.v = hn::MulAdd(gw, xhat, acc.b.v);
    if (dw) store(hn::MulAdd(g, xhat, load(dw + i, part)), dw + i, part);
    if (db) store(hn::Add(g, load(db + i, part)), db + i, part);
  });
  const float inv_width = 1.0f / static_cast<float>(width);
  const V mean_g = splat(kLayerNorm ? s.a.total() * inv_width : 0.0f), mean_gx = splat(s.b.total() * inv_width);
  for_each(width, [&](int64_t i, auto part) HWY_ATTR {
    V g = hn::Mul(load(dy + i, part), load(w + i, part));
    if constexpr (kLayerNorm) g = hn::Sub(g, mean_g);
    g = hn::Mul(rstd, hn::NegMulAdd(xhat_at(i, part), mean_gx, g));
    if (dres) g = hn::Add(g, load(dres + i, part));
    store(g, dx + i, part);
  });
}

void norm_grad_rows(const NormGrad& n, int64_t begin, int64_t end, const float* w, float* dw, float* db) {
  const bool f32 = n.x.type == DType::kF32;
  for (int64_t t = begin; t < end; ++t) {
    if (n.layer_norm)
      f32 ? norm_grad_row<float, true>(n, t, w, dw, db) : norm_grad_row<uint16_t, true>(n, t, w, dw, db);
    else
      f32 ? norm_grad_row<float, false>(n, t, w, dw, db) : norm_grad_row<uint16_t, false>(n, t, w, dw, db);
  }
}

// db[i] (+)= Σ dy[t][i]; four rows at once, so that the sums are read and written a quarter as often.
template <typename T>
void column_sums(const ConstMat& m, int64_t begin, int64_t end, float* sums) {
  const T* p = static_cast<const T*>(m.p);
  int64_t t = begin;
  for (; t + 4 <= end; t += 4) {
    const T *a = p + t * m.ld, *b = a + m.ld, *c = b + m.ld, *d = c + m.ld;
    for_each(m.cols, [&](int64_t i, auto part) HWY_ATTR {
      const V ab = hn::Add(load(a + i, part), load(b + i, part)), cd = hn::Add(load(c + i, part), load(d + i, part));
      store(hn::Add(load(sums + i, part), hn::Add(ab, cd)), sums + i, part);
    });
  }
  for (; t < end; ++t) {
    const T* a = p + t * m.ld;
    for_each(m.cols, [&](int64_t i, auto part)
                         HWY_ATTR { store(hn::Add(load(sums + i, part), load(a + i, part)), sums + i, part); });
  }
}

void bias_rows(const ConstMat& m, int64_t begin, int64_t end, float* sums) {
  m.type == DType::kF32 ? column_sums<float>(m, begin, end, sums) : column_sums<uint16_t>(m, begin, end, sums);
}

// out (+)= Σ of partial rows, in order.
void combine_rows(const float* partial, int64_t pieces, int64_t stride, int64_t width, bool accumulate, float* out) {
  for_each(width, [&](int64_t i, auto part) HWY_ATTR {
    V sum = hn::Zero(F32());
    for (int64_t p = 0; p < pieces; ++p) sum = hn::Add(sum, load(partial + p * stride + i, part));
    if (accumulate) sum = hn::Add(load(out + i, part), sum);
    store(sum, out + i, part);
  });
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_grad_rows);
HWY_EXPORT(bias_rows);
HWY_EXPORT(combine_rows);

}  // namespace

void norm(const Norm& n) {
  MXT_ASSERT(n.x.type != DType::kF64);
  const float* w = as_floats(n.w, n.wtype, n.x.cols, 1.0f, Slot::kWeight);
  const float* b = as_floats(n.b, n.wtype, n.x.cols, 0.0f, Slot::kBias);
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_rows);
  parallel_for(0, n.x.rows, rows_per_piece(n.x.cols), [&](int64_t begin, int64_t end) { kernel(n, begin, end, w, b); });
}

void norm_grad(const NormGrad& n) {
  MXT_ASSERT(n.x.type != DType::kF64);
  const int64_t width = n.x.cols;
  const float* w = as_floats(n.w, n.wtype, width, 1.0f, Slot::kWeight);
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_grad_rows);
  if (!n.dw && !n.db) {
    parallel_for(0, n.x.rows, rows_per_piece(width),
                 [&](int64_t begin, int64_t end) { kernel(n, begin, end, w, nullptr, nullptr); });
    return;
  }
  const RowPieces cut = row_pieces(n.x.rows, width);
  const int64_t stride = 2 * width;
  float* partial = temporary(Slot::kPartial, cut.pieces * stride);
  parallel_for(0, n.x.rows, cut.rows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / cut.rows * stride;
    std::fill_n(sums, stride, 0.0f);
    kernel(n, begin, end, w, n.dw ? sums : nullptr, n.db ? sums + width : nullptr);
  });
  const auto combine = HWY_DYNAMIC_DISPATCH(combine_rows);
  if (n.dw) combine(partial, cut.pieces, stride, width, n.accumulate, n.dw);
  if (n.db) combine(partial + width, cut.pieces, stride, width, n.accumulate, n.db);
}

void bias_grad(const BiasGrad& b) {
  MXT_ASSERT(b.dy.type != DType::kF64);
  const int64_t width = b.dy.cols;
  const RowPieces cut = row_pieces(b.dy.rows, width);
  float* partial = temporary(Slot::kPartial, cut.pieces * width);
  const auto kernel = HWY_DYNAMIC_DISPATCH(bias_rows);
  parallel_for(0, b.dy.rows, cut.rows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / cut.rows * width;
    std::fill_n(sums, width, 0.0f);
    kernel(b.dy, begin, end, sums);
  });
  HWY_DYNAMIC_DISPATCH(combine_rows)(partial, cut.pieces, width, width, b.accumulate, b.db);
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
