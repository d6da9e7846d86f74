#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/mix.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void mix_rows_of(const Mix& m, int64_t begin, int64_t end, float a, float b) {
  const V va = splat(a), vb = splat(b);
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(m.x, t), *z = row_at<T>(m.z, t);
    T* y = row_at<T>(m.y, t);
    for_each(m.y.cols, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::MulAdd(load(z + i, part), vb, hn::Mul(load(x + i, part), va)), y + i, part);
    });
  }
}

void mix_rows(const Mix& m, int64_t begin, int64_t end, float a, float b) {
  m.y.type == DType::kF32 ? mix_rows_of<float>(m, begin, end, a, b) : mix_rows_of<uint16_t>(m, begin, end, a, b);
}

// sums: Σ dy·x and Σ dy·z of these rows.
template <typename T>
void mix_grad_rows_of(const MixGrad& m, int64_t begin, int64_t end, float a, float b, float* sums) {
  const V va = splat(a), vb = splat(b);
  sums[0] = sums[1] = 0;
  for (int64_t t = begin; t < end; ++t) {
    const T *dy = row_at<T>(m.dy, t), *x = row_at<T>(m.x, t), *z = row_at<T>(m.z, t);
    const TwoSums s = reduce<TwoSums>(m.dy.cols, [&](int64_t i, auto part, TwoSums& acc) HWY_ATTR {
      const V g = load(dy + i, part);
      acc.a.v = hn::MulAdd(g, load(x + i, part), acc.a.v);
      acc.b.v = hn::MulAdd(g, load(z + i, part), acc.b.v);
    });
    sums[0] += s.a.total();
    sums[1] += s.b.total();
    T *dz = row_at<T>(m.dz, t), *dx = m.dx.p ? row_at<T>(m.dx, t) : nullptr;
    const T* sum = m.sum.p ? row_at<T>(m.sum, t) : nullptr;
    for_each(m.dy.cols, [&](int64_t i, auto part) HWY_ATTR {
      const V g = load(dy + i, part);
      store(sum ? hn::MulAdd(g, vb, load(sum + i, part)) : hn::Mul(g, vb), dz + i, part);
      if (dx) store(hn::Mul(g, va), dx + i, part);
    });
  }
}

void mix_grad_rows(const MixGrad& m, int64_t begin, int64_t end, float a, float b, float* sums) {
  m.dy.type == DType::kF32 ? mix_grad_rows_of<float>(m, begin, end, a, b, sums)
                           : mix_grad_rows_of<uint16_t>(m, begin, end, a, b, sums);
}

template <typename T>
float gate_value(const T* s, const float* w, int64_t taps) {
  const Sum z = reduce<Sum>(taps, [&](int64_t k, auto part, Sum& acc)
                                      HWY_ATTR { acc.v = hn::MulAdd(load(w + k, part), load(s + k, part), acc.v); });
  return 1.0f / (1.0f + std::exp(-z.total()));
}

template <typename T>
void gate_rows_of(const Gate& c, int64_t begin, int64_t end, const float* w, float by) {
  const int64_t groups = c.w.rows, taps = c.w.cols, width = c.u.cols / groups;
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(c.x, t), *s = row_at<T>(c.s, t), *u = row_at<T>(c.u, t);
    T* y = row_at<T>(c.y, t);
    std::memcpy(y, x, static_cast<size_t>(c.x.cols) * sizeof(T));
    if (c.positions && c.positions[t] == 0) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const V factor = splat(by * gate_value(s, w + g * taps, taps));
      T* to = y + c.col + g * width;
      for_each(width, [&](int64_t i, auto part) HWY_ATTR {
        store(hn::MulAdd(factor, load(u + g * width + i, part), load(to + i, part)), to + i, part);
      });
    }
  }
}

void gate_rows(const Gate& c, int64_t begin, int64_t end, const float* w, float by) {
  c.y.type == DType::kF32 ? gate_rows_of<float>(c, begin, end, w, by) : gate_rows_of<uint16_t>(c, begin, end, w, by);
}

// sums: dw of these rows, then dλ, then room for one row of ds.
template <typename T>
void gate_grad_rows_of(const GateGrad& c, int64_t begin, int64_t end, const float* w, float lambda, float* sums) {
  const int64_t groups = c.w.rows, taps = c.w.cols, width = c.u.cols / groups;
  float *dlambda = sums + groups * taps, *ds = dlambda + 1;
  std::fill_n(sums, groups * taps + 1, 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const T *dy = row_at<T>(c.dy, t) + c.col, *s = row_at<T>(c.s, t), *u = row_at<T>(c.u, t);
    T *du = row_at<T>(c.du, t), *out = row_at<T>(c.ds, t);
    const bool left = c.positions && c.positions[t] == 0;
    std::fill_n(ds, taps, 0.0f);
    for (int64_t g = 0; g < groups; ++g) {
      const float gate = left ? 0.0f : gate_value(s, w + g * taps, taps);
      const V factor = splat(c.by * lambda * gate);
      const Sum p = reduce<Sum>(width, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
        const V d = load(dy + g * width + i, part);
        acc.v = hn::MulAdd(d, load(u + g * width + i, part), acc.v);
        store(hn::Mul(factor, d), du + g * width + i, part);
      });
      const float total = p.total();
      *dlambda += c.by * gate * total;
      const V dz = splat(c.by * lambda * gate * (1 - gate) * total);
      for_each(taps, [&](int64_t k, auto part) HWY_ATTR {
        store(hn::MulAdd(dz, load(s + k, part), load(sums + g * taps + k, part)), sums + g * taps + k, part);
        store(hn::MulAdd(dz, load(w + g * taps + k, part), load(ds + k, part)), ds + k, part);
      });
    }
    for_each(taps, [&](int64_t k, auto part) HWY_ATTR { store(load(ds + k, part), out + k, part); });
    std::memset(out + taps, 0, static_cast<size_t>(c.s.cols - taps) * sizeof(T));
  }
}

void gate_grad_rows(const GateGrad& c, int64_t begin, int64_t end, const float* w, float lambda, float* sums) {
  c.dy.type == DType::kF32 ? gate_grad_rows_of<float>(c, begin, end, w, lambda, sums)
                           : gate_grad_rows_of<uint16_t>(c, begin, end, w, lambda, sums);
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(mix_rows);
HWY_EXPORT(mix_grad_rows);
HWY_EXPORT(gate_rows);
HWY_EXPORT(gate_grad_rows);

float scalar(const void* p, DType type, float missing) {
  if (!p) return missing;
  return type == DType::kF32 ? *static_cast<const float*>(p) : bf16_to_float(*static_cast<const uint16_t*>(p));
}

// out[i] (+)= the sum over pieces, in their order.
void add_pieces(float* out, const float* partial, int64_t pieces, int64_t stride, int64_t n, bool accumulate) {
  if (!out) return;
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += partial[p * stride + i];
    out[i] = accumulate ? out[i] + sum : sum;
  }
}

// The gates' weights, row after row.
const float* gate_weights(const ConstMat& w, std::vector<float>& held) {
  held.resize(static_cast<size_t>(w.rows * w.cols));
  for (int64_t g = 0; g < w.rows; ++g)
    for (int64_t k = 0; k < w.cols; ++k) {
      const int64_t at = g * w.ld + k;
      held[static_cast<size_t>(g * w.cols + k)] = w.type == DType::kF32
                                                      ? static_cast<const float*>(w.p)[at]
                                                      : bf16_to_float(static_cast<const uint16_t*>(w.p)[at]);
    }
  return held.data();
}

}  // namespace

void mix(const Mix& m) {
  MXT_ASSERT(m.y.type != DType::kF64);
  const float a = scalar(m.a, m.wtype, 1), b = m.sign * scalar(m.b, m.wtype, 1);
  const auto kernel = HWY_DYNAMIC_DISPATCH(mix_rows);
  parallel_for(0, m.y.rows, rows_per_piece(m.y.cols), [&](int64_t begin, int64_t end) { kernel(m, begin, end, a, b); });
}

void mix_grad(const MixGrad& m) {
  MXT_ASSERT(m.dy.type != DType::kF64);
  const float a = scalar(m.a, m.wtype, 1), b = m.sign * scalar(m.b, m.wtype, 1);
  const RowPieces cut = row_pieces(m.dy.rows, m.dy.cols);
  float* partial = temporary(Slot::kPartial, cut.pieces * 2);
  const auto kernel = HWY_DYNAMIC_DISPATCH(mix_grad_rows);
  parallel_for(0, m.dy.rows, cut.rows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / cut.rows * 2;
    kernel(m, begin, end, a, b, sums);
    sums[1] *= m.sign;
  });
  add_pieces(m.da, partial, cut.pieces, 2, 1, m.accumulate);
  add_pieces(m.db, partial + 1, cut.pieces, 2, 1, m.accumulate);
}

void gate(const Gate& c) {
  MXT_ASSERT(c.y.type != DType::kF64);
  std::vector<float> held;
  const float* w = gate_weights(c.w, held);
  const float by = c.by * scalar(c.lambda, c.wtype, 1);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gate_rows);
  parallel_for(0, c.y.rows, rows_per_piece(c.y.cols),
               [&](int64_t begin, int64_t end) { kernel(c, begin, end, w, by); });
}

void gate_grad(const GateGrad& c) {
  MXT_ASSERT(c.dy.type != DType::kF64);
  std::vector<float> held;
  const float* w = gate_weights(c.w, held);
  const float lambda = scalar(c.lambda, c.wtype, 1);
  const int64_t weights = c.w.rows * c.w.cols, stride = weights + 1 + c.w.cols;
  const RowPieces cut = row_pieces(c.dy.rows, c.dy.cols);
  float* partial = temporary(Slot::kPartial, cut.pieces * stride);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gate_grad_rows);
  parallel_for(0, c.dy.rows, cut.rows, [&](int64_t begin, int64_t end) {
    kernel(c, begin, end, w, lambda, partial + begin / cut.rows * stride);
  });
  add_pieces(c.dw, partial, cut.pieces, stride, weights, c.accumulate);
  add_pieces(c.dlambda, partial + weights, cut.pieces, stride, 1, c.accumulate);
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
