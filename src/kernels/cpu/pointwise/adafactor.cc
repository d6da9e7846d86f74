#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/adafactor.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// Of one row: Σ over columns of s = g² + eps, which is also added to the columns' sums.
float row_of_squares(const float* grad, int64_t cols, float scale, float eps, float* column_sums) {
  const V k = splat(scale), e = splat(eps);
  return reduce<Sum>(cols,
                     [&](int64_t i, auto part, Sum& sum) HWY_ATTR {
                       const V g = hn::Mul(load(grad + i, part), k), s = hn::MulAdd(g, g, e);
                       store(hn::Add(load(column_sums + i, part), s), column_sums + i, part);
                       sum.v = hn::Add(sum.v, keep(s, part));
                     })
      .total();
}

void combine_rows(const float* partial, int64_t pieces, int64_t width, float* out) {
  for_each(width, [&](int64_t i, auto part) HWY_ATTR {
    V sum = hn::Zero(F32());
    for (int64_t p = 0; p < pieces; ++p) sum = hn::Add(sum, load(partial + p * width + i, part));
    store(sum, out + i, part);
  });
}

// v ← β·v + (1−β)·s of a vector, and Σ u².
float vector_moment(const float* grad, float* v, int64_t n, float scale, float eps, float beta, float rest) {
  const V k = splat(scale), e = splat(eps), b = splat(beta), w = splat(rest);
  return reduce<Sum>(n,
                     [&](int64_t i, auto part, Sum& sum) HWY_ATTR {
                       const V g = hn::Mul(load(grad + i, part), k);
                       const V now = hn::MulAdd(w, hn::MulAdd(g, g, e), hn::Mul(load(v + i, part), b));
                       store(now, v + i, part);
                       sum.v = hn::Add(sum.v, keep(hn::Div(hn::Mul(g, g), now), part));
                     })
      .total();
}
void vector_update(const AdafactorTensor& x, int64_t begin, int64_t end, float scale, float decay, float rate) {
  const V k = splat(scale), d = splat(decay), r = splat(rate);
  for_each(end - begin, [&](int64_t offset, auto part) HWY_ATTR {
    const int64_t i = begin + offset;
    const V u = hn::Div(hn::Mul(load(x.grad + i, part), k), hn::Sqrt(load(x.v + i, part)));
    const V p = hn::NegMulAdd(r, u, hn::Mul(load(x.master + i, part), d));
    store(p, x.master + i, part);
    if (x.copy) store(p, x.copy + i, part);
  });
}

// Σ u² of one row, u = g · row · column.
float row_of_updates(const float* grad, int64_t cols, float factor, const float* column) {
  const V k = splat(factor);
  return reduce<Sum>(cols,
                     [&](int64_t i, auto part, Sum& sum) HWY_ATTR {
                       const V u = hn::Mul(hn::Mul(load(grad + i, part), k), load(column + i, part));
                       sum.v = hn::MulAdd(u, u, sum.v);
                     })
      .total();
}
void row_update(float* master, uint16_t* copy, const float* grad, int64_t cols, float factor, const float* column,
                float decay, float rate) {
  const V k = splat(factor), d = splat(decay), r = splat(rate);
  for_each(cols, [&](int64_t i, auto part) HWY_ATTR {
    const V u = hn::Mul(hn::Mul(load(grad + i, part), k), load(column + i, part));
    const V p = hn::NegMulAdd(r, u, hn::Mul(load(master + i, part), d));
    store(p, master + i, part);
    if (copy) store(p, copy + i, part);
  });
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(row_of_squares);
HWY_EXPORT(combine_rows);
HWY_EXPORT(vector_moment);
HWY_EXPORT(vector_update);
HWY_EXPORT(row_of_updates);
HWY_EXPORT(row_update);

// lr / max(1, rms / clip)
float clipped_rate(const AdafactorTensor& x, const std::vector<double>& squares, float clip) {
  double sum = 0;
  for (double s : squares) sum += s;
  const double rms = std::sqrt(sum / static_cast<double>(x.rows * x.cols));
  return static_cast<float>(static_cast<double>(x.lr) / std::max(1.0, rms / static_cast<double>(clip)));
}

float decay_of(const AdafactorTensor& x) {
  return static_cast<float>(1.0 - static_cast<double>(x.lr) * static_cast<double>(x.weight_decay));
}

void of_vector(const Adafactor& a, const AdafactorTensor& x) {
  const int64_t n = x.rows * x.cols;
  const float scale = a.whole_grad_scale();
  std::vector<double> squares(static_cast<size_t>((n + kGrain - 1) / kGrain));
  parallel_for(0, n, kGrain, [&](int64_t b, int64_t e) {
    squares[static_cast<size_t>(b / kGrain)] = static_cast<double>(HWY_DYNAMIC_DISPATCH(vector_moment)(
        x.grad + b, x.v + b, e - b, scale, a.eps, static_cast<float>(a.decay), static_cast<float>(1.0 - a.decay)));
  });
  const float rate = clipped_rate(x, squares, a.clip);
  parallel_for(0, n, kGrain,
               [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(vector_update)(x, b, e, scale, decay_of(x), rate); });
}

// state ← β·state + (1−β)·sum/n
void mix(float* state, const float* sums, int64_t count, int64_t n, double beta) {
  for (int64_t i = 0; i < count; ++i)
    state[i] = static_cast<float>(beta * static_cast<double>(state[i]) +
                                  (1.0 - beta) * static_cast<double>(sums[i]) / static_cast<double>(n));
}

void of_matrix(const Adafactor& a, const AdafactorTensor& x) {
  const float scale = a.whole_grad_scale();
  const RowPieces cut = row_pieces(x.rows, x.cols);
  float* partial = temporary(Slot::kPartial, cut.pieces * x.cols);
  float* row = temporary(Slot::kRow, x.rows);
  float* column = temporary(Slot::kColumn, x.cols);
  parallel_for(0, x.rows, cut.rows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / cut.rows * x.cols;
    std::fill_n(sums, x.cols, 0.0f);
    for (int64_t r = begin; r < end; ++r)
      row[r] = HWY_DYNAMIC_DISPATCH(row_of_squares)(x.grad + r * x.cols, x.cols, scale, a.eps, sums);
  });
  HWY_DYNAMIC_DISPATCH(combine_rows)(partial, cut.pieces, x.cols, column);
  mix(x.row, row, x.rows, x.cols, a.decay);
  mix(x.col, column, x.cols, x.rows, a.decay);
  double mean = 0;
  for (int64_t r = 0; r < x.rows; ++r) mean += static_cast<double>(x.row[r]);
  mean /= static_cast<double>(x.rows);
  for (int64_t r = 0; r < x.rows; ++r)
    row[r] = static_cast<float>(static_cast<double>(scale) * std::sqrt(mean / static_cast<double>(x.row[r])));
  for (int64_t c = 0; c < x.cols; ++c) column[c] = 1.0f / std::sqrt(x.col[c]);
  std::vector<double> squares(static_cast<size_t>(cut.pieces));
  parallel_for(0, x.rows, cut.rows, [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t r = begin; r < end; ++r)
      sum += static_cast<double>(HWY_DYNAMIC_DISPATCH(row_of_updates)(x.grad + r * x.cols, x.cols, row[r], column));
    squares[static_cast<size_t>(begin / cut.rows)] = sum;
  });
  const float rate = clipped_rate(x, squares, a.clip), decay = decay_of(x);
  parallel_for(0, x.rows, cut.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      HWY_DYNAMIC_DISPATCH(row_update)(x.master + r * x.cols, x.copy ? x.copy + r * x.cols : nullptr,
                                       x.grad + r * x.cols, x.cols, row[r], column, decay, rate);
  });
}

}  // namespace

void adafactor(const Adafactor& a) {
  for (const AdafactorTensor& x : a.tensors) {
    if (x.rows * x.cols == 0) continue;
    x.row ? of_matrix(a, x) : of_vector(a, x);
  }
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
