// The norm and the gates around the delta rule and attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/threads.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta/gates.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void gated_norm_of(const GatedNorm& g, const float* w, int64_t begin, int64_t end) {
  const int64_t dim = g.w.cols, heads = g.x.cols / dim;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const T *x = row_at<T>(g.x, t) + h * dim, *gate = row_at<T>(g.gate, t) + h * dim;
      T* y = row_at<T>(g.y, t) + h * dim;
      const Sum squares = reduce<Sum>(dim, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
        const V v = load(x + i, part);
        a.v = hn::MulAdd(v, v, a.v);
      });
      const float rstd = 1.0f / std::sqrt(squares.total() / static_cast<float>(dim) + g.eps);
      if (g.rstd) g.rstd[t * heads + h] = rstd;
      const V r = splat(rstd);
      for_each(dim, [&](int64_t i, auto part) HWY_ATTR {
        const V z = load(gate + i, part), n = hn::Mul(hn::Mul(load(x + i, part), r), load(w + i, part));
        store(hn::Mul(n, hn::Mul(z, sigmoid(z))), y + i, part);
      });
    }
}

template <typename T>
void gated_norm_grad_of(const GatedNormGrad& g, const float* w, float* dw, int64_t begin, int64_t end) {
  const int64_t dim = g.w.cols, heads = g.x.cols / dim;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = h * dim;
      const T *x = row_at<T>(g.x, t) + at, *gate = row_at<T>(g.gate, t) + at, *dy = row_at<T>(g.dy, t) + at;
      T *dx = row_at<T>(g.dx, t) + at, *dgate = row_at<T>(g.dgate, t) + at;
      const V r = splat(g.rstd[t * heads + h]), one = splat(1.0f);
      const Sum sum = reduce<Sum>(dim, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
        const V z = load(gate + i, part), silu = hn::Mul(z, sigmoid(z)), n = hn::Mul(load(x + i, part), r);
        const V ds = hn::Mul(load(dy + i, part), silu);
        if (dw) store(hn::MulAdd(ds, n, load(dw + i, part)), dw + i, part);
        a.v = hn::MulAdd(hn::Mul(ds, load(w + i, part)), n, a.v);
      });
      const V mean = splat(sum.total() / static_cast<float>(dim));
      for_each(dim, [&](int64_t i, auto part) HWY_ATTR {
        const V z = load(gate + i, part), s = sigmoid(z), n = hn::Mul(load(x + i, part), r), wi = load(w + i, part);
        const V d = load(dy + i, part), silu = hn::Mul(z, s), slope = hn::MulAdd(silu, hn::Sub(one, s), s);
        const V dn = hn::Mul(hn::Mul(d, silu), wi);
        store(hn::Mul(r, hn::NegMulAdd(n, mean, dn)), dx + i, part);
        store(hn::Mul(hn::Mul(hn::Mul(d, n), wi), slope), dgate + i, part);
      });
    }
}

template <typename T>
void sigmoid_gate_rows_of(const SigmoidGate& g, int64_t begin, int64_t end) {
  const bool one = g.gate.cols == 1 && g.x.cols != 1;
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(g.x, t), *gate = row_at<T>(g.gate, t);
    T* y = row_at<T>(g.y, t);
    const V all = sigmoid(splat(as_float(gate[0])));
    for_each(g.y.cols, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(x + i, part), one ? all : sigmoid(load(gate + i, part))), y + i, part);
    });
  }
}

template <typename T>
void sigmoid_gate_grad_rows_of(const SigmoidGateGrad& g, int64_t begin, int64_t end) {
  const bool one = g.gate.cols == 1 && g.x.cols != 1;
  const V unit = splat(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const T *x = row_at<T>(g.x, t), *gate = row_at<T>(g.gate, t), *dy = row_at<T>(g.dy, t);
    T *dx = row_at<T>(g.dx, t), *dgate = row_at<T>(g.dgate, t);
    const V all = sigmoid(splat(as_float(gate[0])));
    const Sum sum = reduce<Sum>(g.dy.cols, [&](int64_t i, auto part, Sum& a) HWY_ATTR {
      const V s = one ? all : sigmoid(load(gate + i, part)), d = load(dy + i, part), v = load(x + i, part);
      const V dg = hn::Mul(hn::Mul(d, v), hn::Mul(s, hn::Sub(unit, s)));
      store(hn::Mul(d, s), dx + i, part);
      if (one)
        a.v = hn::Add(a.v, keep(dg, part));
      else
        store(dg, dgate + i, part);
    });
    if (one) put(sum.total(), dgate);
  }
}

void gated_norm_rows(const GatedNorm& g, const float* w, int64_t begin, int64_t end) {
  g.x.type == DType::kF32 ? gated_norm_of<float>(g, w, begin, end) : gated_norm_of<uint16_t>(g, w, begin, end);
}
void gated_norm_grad_rows(const GatedNormGrad& g, const float* w, float* dw, int64_t begin, int64_t end) {
  g.x.type == DType::kF32 ? gated_norm_grad_of<float>(g, w, dw, begin, end)
                          : gated_norm_grad_of<uint16_t>(g, w, dw, begin, end);
}
MXT_BOTH_TYPES(sigmoid_gate_rows, SigmoidGate, c.x)
MXT_BOTH_TYPES(sigmoid_gate_grad_rows, SigmoidGateGrad, c.x)

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {

HWY_EXPORT(gated_norm_rows);
HWY_EXPORT(gated_norm_grad_rows);
HWY_EXPORT(sigmoid_gate_rows);
HWY_EXPORT(sigmoid_gate_grad_rows);

void gated_norm(const GatedNorm& g) {
  const float* w = as_floats(g.w.p, g.w.type, g.w.cols, 1.0f, Slot::kWeight);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gated_norm_rows);
  parallel_for(0, g.x.rows, rows_per_piece(2 * g.x.cols), [&](int64_t b, int64_t e) { kernel(g, w, b, e); });
}

void gated_norm_grad(const GatedNormGrad& g) {
  const int64_t dim = g.w.cols;
  const float* w = as_floats(g.w.p, g.w.type, dim, 1.0f, Slot::kWeight);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gated_norm_grad_rows);
  const RowPieces cut = row_pieces(g.x.rows, g.x.cols);
  float* partial = temporary(Slot::kPartial, std::max<int64_t>(1, cut.pieces) * dim);
  parallel_for(0, g.x.rows, cut.rows, [&](int64_t b, int64_t e) {
    float* sums = partial + b / cut.rows * dim;
    std::fill_n(sums, dim, 0.0f);
    kernel(g, w, g.dw ? sums : nullptr, b, e);
  });
  if (!g.dw) return;
  for (int64_t i = 0; i < dim; ++i) {
    float sum = 0;
    for (int64_t p = 0; p < cut.pieces; ++p) sum += partial[p * dim + i];
    g.dw[i] = g.accumulate ? g.dw[i] + sum : sum;
  }
}

void sigmoid_gate(const SigmoidGate& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sigmoid_gate_rows);
  parallel_for(0, g.y.rows, rows_per_piece(2 * g.y.cols), [&](int64_t b, int64_t e) { kernel(g, b, e); });
}

void sigmoid_gate_grad(const SigmoidGateGrad& g) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sigmoid_gate_grad_rows);
  parallel_for(0, g.dy.rows, rows_per_piece(2 * g.dy.cols), [&](int64_t b, int64_t e) { kernel(g, b, e); });
}

void split_gates(const SplitGates& s) {
  const size_t size = size_of(s.all.type), head = static_cast<size_t>(s.dim) * size;
  const int64_t heads = s.gate.cols / s.dim;
  auto row = [&](const Mat& m, int64_t t) {
    return static_cast<std::byte*>(m.p) + static_cast<size_t>(t * m.ld) * size;
  };
  auto move = [&](std::byte* all, std::byte* part, size_t bytes) {
    s.merge ? std::memcpy(all, part, bytes) : std::memcpy(part, all, bytes);
  };
  parallel_for(0, s.all.rows, rows_per_piece(s.all.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::byte *all = row(s.all, t), *plain = row(s.plain, t), *gate = row(s.gate, t);
      for (int64_t h = 0; h < heads; ++h, all += 2 * head, plain += head, gate += head)
        move(all, plain, head), move(all + head, gate, head);
      move(all, plain, static_cast<size_t>(s.plain.cols - heads * s.dim) * size);
    }
  });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
