#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/muon.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// The momentum of one row, u into x, and Σ u² of it as x holds it.
template <typename T>
float row_of_direction(const MuonDirection& m, int64_t r, float scale) {
  const int64_t cols = m.x.cols, at = r * cols;
  const V k = splat(scale), mu = splat(static_cast<float>(m.mu)), rest = splat(static_cast<float>(1.0 - m.mu));
  T* x = static_cast<T*>(m.x.p) + at;
  return reduce<Sum>(cols,
                     [&](int64_t i, auto part, Sum& sum) HWY_ATTR {
                       const V g = hn::Mul(hn::Mul(load(m.grad + at + i, part), k), rest);
                       const V b = hn::MulAdd(mu, load(m.momentum + at + i, part), g);
                       store(b, m.momentum + at + i, part);
                       const V u = rounded_as(hn::MulAdd(mu, b, g), x);
                       store(u, x + i, part);
                       sum.v = hn::MulAdd(keep(u, part), keep(u, part), sum.v);
                     })
      .total();
}
float direction_row(const MuonDirection& m, int64_t r, float scale) {
  return m.x.type == DType::kF32 ? row_of_direction<float>(m, r, scale) : row_of_direction<uint16_t>(m, r, scale);
}

template <typename T>
void times(T* x, int64_t n, float factor) {
  const V f = splat(factor);
  for_each(n, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(x + i, part), f), x + i, part); });
}
void scale_row(const Mat& x, int64_t r, float factor) {
  x.type == DType::kF32 ? times(static_cast<float*>(x.p) + r * x.ld, x.cols, factor)
                        : times(static_cast<uint16_t*>(x.p) + r * x.ld, x.cols, factor);
}

// Σ x² of a row, which is also added to the columns' sums where these are wanted.
template <typename T>
float row_of_squares(const T* x, int64_t cols, float* column_sums) {
  return reduce<Sum>(cols,
                     [&](int64_t i, auto part, Sum& sum) HWY_ATTR {
                       const V v = load(x + i, part), square = hn::Mul(v, v);
                       if (column_sums) store(hn::Add(load(column_sums + i, part), square), column_sums + i, part);
                       sum.v = hn::Add(sum.v, square);
                     })
      .total();
}
float squares_of_row(const ConstMat& x, int64_t r, float* column_sums) {
  return x.type == DType::kF32 ? row_of_squares(static_cast<const float*>(x.p) + r * x.ld, x.cols, column_sums)
                               : row_of_squares(static_cast<const uint16_t*>(x.p) + r * x.ld, x.cols, column_sums);
}

// p of a row; u = x · factor · column (null: 1).
template <typename T>
void row_of_update(const MuonUpdate& m, int64_t r, float factor, const float* column) {
  const int64_t at = r * m.x.cols;
  const T* x = static_cast<const T*>(m.x.p) + at;
  const V f = splat(factor), lr = splat(m.lr), decay = splat(m.lr * m.weight_decay), zero = hn::Zero(F32());
  for_each(m.x.cols, [&](int64_t i, auto part) HWY_ATTR {
    V u = hn::Mul(load(x + i, part), f);
    if (column) u = hn::Mul(u, load(column + i, part));
    const V p = load(m.master + at + i, part);
    V lost = hn::Mul(decay, p);
    if (m.cautious) lost = hn::IfThenElseZero(hn::Ge(hn::Mul(u, p), zero), lost);
    const V after = hn::Sub(hn::NegMulAdd(lr, u, p), lost);
    store(after, m.master + at + i, part);
    if (m.copy) store(after, m.copy + at + i, part);
  });
}
void update_row(const MuonUpdate& m, int64_t r, float factor, const float* column) {
  m.x.type == DType::kF32 ? row_of_update<float>(m, r, factor, column) : row_of_update<uint16_t>(m, r, factor, column);
}

void combine_rows(const float* partial, int64_t pieces, int64_t width, float* out) {
  for_each(width, [&](int64_t i, auto part) HWY_ATTR {
    V sum = hn::Zero(F32());
    for (int64_t p = 0; p < pieces; ++p) sum = hn::Add(sum, load(partial + p * width + i, part));
    store(sum, out + i, part);
  });
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(direction_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(squares_of_row);
HWY_EXPORT(update_row);
HWY_EXPORT(combine_rows);

double sum_of(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

// Sums of squares become what each row (column) is multiplied with; the running means move on.
void normuon_factors(const MuonUpdate& m, float* sums, int64_t kept) {
  const int64_t rows = m.x.rows, cols = m.x.cols;
  const double all = sum_of(sums, kept), along = static_cast<double>(rows >= cols ? cols : rows);
  const double first = std::sqrt(static_cast<double>(std::min(rows, cols))) / std::max(std::sqrt(all), 1e-6);
  double after = 0;
  for (int64_t k = 0; k < kept; ++k) {
    const double square = static_cast<double>(sums[k]), mean = first * first * square / along;
    m.second[k] = static_cast<float>(m.beta2 * static_cast<double>(m.second[k]) + (1.0 - m.beta2) * mean);
    const double s = first / std::sqrt(std::max(static_cast<double>(m.second[k]), 1e-10));
    after += s * s * square;
    sums[k] = static_cast<float>(s);
  }
  const auto keep = static_cast<float>(first * std::sqrt(all) / std::max(std::sqrt(after), 1e-10));
  for (int64_t k = 0; k < kept; ++k) sums[k] *= keep;
}

}  // namespace

void muon_direction(const MuonDirection& m) {
  const int64_t rows = m.x.rows, grain = rows_per_piece(m.x.cols);
  const float scale = m.whole_grad_scale();
  float* factor = temporary(Slot::kRow, rows);
  parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) factor[r] = HWY_DYNAMIC_DISPATCH(direction_row)(m, r, scale);
  });
  double norm = std::sqrt(sum_of(factor, rows));
  if (m.equalise) {
    const double wanted = norm / std::sqrt(static_cast<double>(rows));
    double after = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double square = static_cast<double>(factor[r]), f = wanted / std::max(std::sqrt(square), 1e-6);
      factor[r] = static_cast<float>(f);
      after += f * f * square;
    }
    norm = std::sqrt(after);
  }
  const double eps = static_cast<double>(m.eps);
  const double divisor = m.equalise ? static_cast<double>(m.slack) * norm + eps : std::max(norm, eps);
  parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) HWY_DYNAMIC_DISPATCH(scale_row)
    (m.x, r, static_cast<float>((m.equalise ? static_cast<double>(factor[r]) : 1.0) / divisor));
  });
}

void muon_update(const MuonUpdate& m) {
  const int64_t rows = m.x.rows, cols = m.x.cols;
  const bool by_row = rows >= cols;
  const RowPieces cut = row_pieces(rows, cols);
  float *row = nullptr, *column = nullptr;
  if (m.second) {
    row = temporary(Slot::kRow, rows);
    float* partial = by_row ? nullptr : temporary(Slot::kPartial, cut.pieces * cols);
    parallel_for(0, rows, cut.rows, [&](int64_t begin, int64_t end) {
      float* sums = by_row ? nullptr : partial + begin / cut.rows * cols;
      if (sums) std::fill_n(sums, cols, 0.0f);
      for (int64_t r = begin; r < end; ++r) row[r] = HWY_DYNAMIC_DISPATCH(squares_of_row)(m.x, r, sums);
    });
    if (!by_row) {
      column = temporary(Slot::kColumn, cols);
      HWY_DYNAMIC_DISPATCH(combine_rows)(partial, cut.pieces, cols, column);
    }
    normuon_factors(m, by_row ? row : column, by_row ? rows : cols);
  }
  parallel_for(0, rows, cut.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      HWY_DYNAMIC_DISPATCH(update_row)(m, r, m.second && by_row ? row[r] : 1.0f, column);
  });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
