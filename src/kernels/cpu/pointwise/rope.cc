#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/rope.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// out = rotation(x · scale · w), pair by pair: both halves are read before either is written, so out may be x.
// w null: no weight. kBack turns the other way.
template <bool kBack, typename T, typename Out>
void turn_head(const T* x, Out* out, int64_t head_dim, int64_t rotary, const float* cos, const float* sin, float scale,
               const float* w) {
  const int64_t half = rotary / 2;
  const V s = splat(scale);
  auto value = [&](int64_t i, auto part) HWY_ATTR {
    const V v = load(x + i, part);
    return w ? hn::Mul(hn::Mul(v, s), load(w + i, part)) : v;
  };
  for_each(half, [&](int64_t i, auto part) HWY_ATTR {
    const V a = value(i, part), b = value(i + half, part);
    const V c = load(cos + i, part), sn = kBack ? hn::Neg(load(sin + i, part)) : load(sin + i, part);
    store(hn::NegMulAdd(b, sn, hn::Mul(a, c)), out + i, part);
    store(hn::MulAdd(a, sn, hn::Mul(b, c)), out + i + half, part);
  });
  if (w || static_cast<const void*>(x) != out)
    for_each(head_dim - rotary,
             [&](int64_t i, auto part) HWY_ATTR { store(value(rotary + i, part), out + rotary + i, part); });
}

template <typename T>
void rope_rows_of(const QkNormRope& r, int64_t begin, int64_t end, const float* q_w, const float* k_w) {
  const int64_t d = r.head_dim, qk = r.heads + r.kv_heads, half = r.rotary / 2;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = row_at<T>(r.qkv, t);
    T* out = row_at<T>(r.out, t);
    const float* cos = half ? r.cos + r.positions[t] * half : nullptr;
    const float* sin = half ? r.sin + r.positions[t] * half : nullptr;
    for (int64_t h = 0; h < qk; ++h) {
      const float* w = h < r.heads ? q_w : k_w;
      float rstd = 1;
      if (w) {
        const Sum squares = reduce<Sum>(d, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
          const V v = load(x + h * d + i, part);
          acc.v = hn::MulAdd(v, v, acc.v);
        });
        rstd = 1.0f / std::sqrt(squares.total() / static_cast<float>(d) + r.eps);
      }
      if (r.rstd && (q_w || k_w)) r.rstd[t * qk + h] = rstd;
      turn_head<false>(x + h * d, out + h * d, d, r.rotary, cos, sin, rstd, w);
    }
    if (x != out) std::memcpy(out + qk * d, x + qk * d, static_cast<size_t>(r.kv_heads * d) * sizeof(T));
  }
}

void rope_rows(const QkNormRope& r, int64_t begin, int64_t end, const float* q_w, const float* k_w) {
  r.qkv.type == DType::kF32 ? rope_rows_of<float>(r, begin, end, q_w, k_w)
                            : rope_rows_of<uint16_t>(r, begin, end, q_w, k_w);
}

// RMSNorm's gradient of one head; g holds the gradient of the normed and weighted head.
template <typename T>
void norm_back(const T* x, const float* g, T* dx, int64_t d, float rstd, const float* w, float* dw) {
  const V s = splat(rstd);
  const Sum dot = reduce<Sum>(d, [&](int64_t i, auto part, Sum& acc) HWY_ATTR {
    const V gi = load(g + i, part), xhat = hn::Mul(load(x + i, part), s);
    acc.v = hn::MulAdd(hn::Mul(gi, load(w + i, part)), xhat, acc.v);
    if (dw) store(hn::MulAdd(gi, xhat, load(dw + i, part)), dw + i, part);
  });
  const V mean = splat(dot.total() / static_cast<float>(d));
  for_each(d, [&](int64_t i, auto part) HWY_ATTR {
    const V gw = hn::Mul(load(g + i, part), load(w + i, part)), xhat = hn::Mul(load(x + i, part), s);
    store(hn::Mul(s, hn::NegMulAdd(xhat, mean, gw)), dx + i, part);
  });
}

template <typename T>
void rope_grad_rows_of(const QkNormRopeGrad& r, int64_t begin, int64_t end, const float* q_w, const float* k_w,
                       float* dq_w, float* dk_w, float* head) {
  const int64_t d = r.head_dim, qk = r.heads + r.kv_heads, half = r.rotary / 2;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = q_w || k_w ? row_at<T>(r.qkv, t) : nullptr;
    const T* dout = row_at<T>(r.dout, t);
    T* dqkv = row_at<T>(r.dqkv, t);
    const float* cos = half ? r.cos + r.positions[t] * half : nullptr;
    const float* sin = half ? r.sin + r.positions[t] * half : nullptr;
    for (int64_t h = 0; h < qk; ++h) {
      const float* w = h < r.heads ? q_w : k_w;
      if (w) {
        turn_head<true>(dout + h * d, head, d, r.rotary, cos, sin, 1.0f, nullptr);
        norm_back(x + h * d, head, dqkv + h * d, d, r.rstd[t * qk + h], w, h < r.heads ? dq_w : dk_w);
      } else {
        turn_head<true>(dout + h * d, dqkv + h * d, d, r.rotary, cos, sin, 1.0f, nullptr);
      }
    }
    if (dout != dqkv) std::memcpy(dqkv + qk * d, dout + qk * d, static_cast<size_t>(r.kv_heads * d) * sizeof(T));
  }
}

void rope_grad_rows(const QkNormRopeGrad& r, int64_t begin, int64_t end, const float* q_w, const float* k_w,
                    float* dq_w, float* dk_w, float* head) {
  r.dout.type == DType::kF32 ? rope_grad_rows_of<float>(r, begin, end, q_w, k_w, dq_w, dk_w, head)
                             : rope_grad_rows_of<uint16_t>(r, begin, end, q_w, k_w, dq_w, dk_w, head);
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(rope_rows);
HWY_EXPORT(rope_grad_rows);

void add_partial(float* out, const float* partial, int64_t pieces, int64_t stride, int64_t n, bool accumulate) {
  if (!out) return;
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += partial[p * stride + i];
    out[i] = accumulate ? out[i] + sum : sum;
  }
}

}  // namespace

void qk_norm_rope(const QkNormRope& r) {
  MXT_ASSERT(r.qkv.type != DType::kF64);
  const float* q_w = r.q_w ? as_floats(r.q_w, r.wtype, r.head_dim, 1.0f, Slot::kWeight) : nullptr;
  const float* k_w = r.k_w ? as_floats(r.k_w, r.wtype, r.head_dim, 1.0f, Slot::kBias) : nullptr;
  const auto kernel = HWY_DYNAMIC_DISPATCH(rope_rows);
  parallel_for(0, r.qkv.rows, rows_per_piece(r.qkv.cols),
               [&](int64_t begin, int64_t end) { kernel(r, begin, end, q_w, k_w); });
}

void qk_norm_rope_grad(const QkNormRopeGrad& r) {
  MXT_ASSERT(r.dout.type != DType::kF64);
  const int64_t d = r.head_dim;
  const float* q_w = r.q_w ? as_floats(r.q_w, r.wtype, d, 1.0f, Slot::kWeight) : nullptr;
  const float* k_w = r.k_w ? as_floats(r.k_w, r.wtype, d, 1.0f, Slot::kBias) : nullptr;
  const RowPieces cut = row_pieces(r.dout.rows, r.dout.cols);
  const int64_t stride = 3 * d;  // dq_w, dk_w, one head's values
  float* partial = temporary(Slot::kPartial, cut.pieces * stride);
  const auto kernel = HWY_DYNAMIC_DISPATCH(rope_grad_rows);
  parallel_for(0, r.dout.rows, cut.rows, [&](int64_t begin, int64_t end) {
    float* sums = partial + begin / cut.rows * stride;
    std::fill_n(sums, 2 * d, 0.0f);
    kernel(r, begin, end, q_w, k_w, r.dq_w ? sums : nullptr, r.dk_w ? sums + d : nullptr, sums + 2 * d);
  });
  add_partial(r.dq_w, partial, cut.pieces, stride, d, r.accumulate);
  add_partial(r.dk_w, partial + d, cut.pieces, stride, d, r.accumulate);
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
