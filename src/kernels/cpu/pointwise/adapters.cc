#include <array>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/threads.h"
#include "kernels/adapters.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise/adapters.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

template <typename T>
void gain_rows_of(const DoraGain& d, int64_t begin, int64_t end) {
  const int64_t rank = d.q.cols;
  for (int64_t i = begin; i < end; ++i) {
    const T *w = row_at<T>(d.w, i), *p = row_at<T>(d.p, i), *b = row_at<T>(d.b, i);
    float squared = reduce<Sum>(d.w.cols, [&](int64_t k, auto part, Sum& acc) HWY_ATTR {
                      const V x = load(w + k, part);
                      acc.v = hn::MulAdd(x, x, acc.v);
                    }).total();
    for (int64_t r = 0; r < rank; ++r) {
      const T* q = row_at<T>(d.q, r);
      const float of_q = reduce<Sum>(rank, [&](int64_t c, auto part, Sum& acc) HWY_ATTR {
                           acc.v = hn::MulAdd(load(q + c, part), load(b + c, part), acc.v);
                         }).total();
      squared += d.scale * as_float(b[r]) * (2 * as_float(p[r]) + d.scale * of_q);
    }
    d.norm[i] = std::sqrt(squared);
    d.gain[i] = d.m[i] / d.norm[i];
  }
}

MXT_BOTH_TYPES(gain_rows, DoraGain, c.w)

template <typename T>
void scale_rows_of(const DoraScale& d, int64_t begin, int64_t end, const float* bias) {
  for (int64_t t = begin; t < end; ++t) {
    const T* u = row_at<T>(d.u, t);
    T* y = row_at<T>(d.y, t);
    for_each(d.u.cols, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::MulAdd(load(d.gain + i, part), load(u + i, part), load(bias + i, part)), y + i, part);
    });
  }
}

void scale_rows(const DoraScale& d, int64_t begin, int64_t end, const float* bias) {
  d.u.type == DType::kF32 ? scale_rows_of<float>(d, begin, end, bias) : scale_rows_of<uint16_t>(d, begin, end, bias);
}

// sums: Σ dy∘u of these rows, [cols]; null: not wanted.
template <typename T>
void scale_grad_rows_of(const DoraScaleGrad& d, int64_t begin, int64_t end, float* sums) {
  if (sums) std::memset(sums, 0, static_cast<size_t>(d.u.cols) * sizeof(float));
  for (int64_t t = begin; t < end; ++t) {
    const T *dy = row_at<T>(d.dy, t), *u = row_at<T>(d.u, t);
    T* du = row_at<T>(d.du, t);
    for_each(d.u.cols, [&](int64_t i, auto part) HWY_ATTR {
      const V g = load(dy + i, part);
      if (sums) store(hn::MulAdd(g, load(u + i, part), load(sums + i, part)), sums + i, part);
      store(hn::Mul(load(d.gain + i, part), g), du + i, part);
    });
  }
}

void scale_grad_rows(const DoraScaleGrad& d, int64_t begin, int64_t end, float* sums) {
  d.u.type == DType::kF32 ? scale_grad_rows_of<float>(d, begin, end, sums)
                          : scale_grad_rows_of<uint16_t>(d, begin, end, sums);
}

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(gain_rows);
HWY_EXPORT(scale_rows);
HWY_EXPORT(scale_grad_rows);

// Noise of rows [first, last) of one document.
template <typename T>
void noise_rows(const EmbeddingNoise& e, int64_t first, int64_t last, float most) {
  for (int64_t t = first; t < last; ++t) {
    const T* x = static_cast<const T*>(e.x.p) + t * e.x.ld;
    T* y = static_cast<T*>(e.y.p) + t * e.y.ld;
    std::array<uint32_t, 4> words{};
    uint64_t drawn = UINT64_MAX;
    for (int64_t i = 0; i < e.x.cols; ++i) {
      const auto element = static_cast<uint64_t>((e.first_row + t) * e.x.cols + i);
      if (element / 4 != drawn) words = philox4x32(e.seed, e.stream, drawn = element / 4);
      const float noise = most * noise_of(words[element % 4]);
      if constexpr (sizeof(T) == 4)
        y[i] = x[i] + noise;
      else
        y[i] = float_to_bf16(bf16_to_float(x[i]) + noise);
    }
  }
}

}  // namespace

void dora_gain(const DoraGain& d) {
  if (d.w.p == nullptr) {
    std::fill_n(d.gain, d.rows, 1.0f);
    std::fill_n(d.norm, d.rows, 1.0f);
    return;
  }
  MXT_ASSERT(d.w.type != DType::kF64);
  const auto kernel = HWY_DYNAMIC_DISPATCH(gain_rows);
  parallel_for(0, d.rows, rows_per_piece(d.w.cols), [&](int64_t begin, int64_t end) { kernel(d, begin, end); });
}

void dora_scale(const DoraScale& d) {
  MXT_ASSERT(d.u.type != DType::kF64);
  const float* bias = as_floats(d.bias, d.bias_type, d.u.cols, 0.0f, Slot::kBias);
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_rows);
  parallel_for(0, d.u.rows, rows_per_piece(d.u.cols), [&](int64_t begin, int64_t end) { kernel(d, begin, end, bias); });
}

void dora_scale_grad(const DoraScaleGrad& d) {
  MXT_ASSERT(d.u.type != DType::kF64);
  const RowPieces cut = row_pieces(d.u.rows, d.u.cols);
  float* partial = d.dm ? temporary(Slot::kPartial, cut.pieces * d.u.cols) : nullptr;
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_grad_rows);
  parallel_for(0, d.u.rows, cut.rows, [&](int64_t begin, int64_t end) {
    kernel(d, begin, end, partial ? partial + begin / cut.rows * d.u.cols : nullptr);
  });
  if (!d.dm) return;
  for (int64_t i = 0; i < d.u.cols; ++i) {
    float sum = 0;
    for (int64_t p = 0; p < cut.pieces; ++p) sum += partial[p * d.u.cols + i];
    sum /= d.norm[i];
    d.dm[i] = d.accumulate ? d.dm[i] + sum : sum;
  }
}

void embedding_noise(const EmbeddingNoise& e) {
  MXT_ASSERT(e.x.type != DType::kF64);
  parallel_for(0, e.documents, 1, [&](int64_t begin, int64_t end) {
    for (int64_t doc = begin; doc < end; ++doc) {
      const int64_t first = e.cu_seqlens[doc], last = e.cu_seqlens[doc + 1];
      const float most = e.alpha / std::sqrt(static_cast<float>((last - first) * e.x.cols));
      e.x.type == DType::kF32 ? noise_rows<float>(e, first, last, most) : noise_rows<uint16_t>(e, first, last, most);
    }
  });
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
