// The causal depthwise convolution. Channels are cut into blocks that threads share; a block goes through the tokens in
// order, so that its weights and their gradients stay at hand and nothing is summed across threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/threads.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/pointwise/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta/conv.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/pointwise/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mxt::kernels::cpu::HWY_NAMESPACE {
namespace {

// w: [width, channels], as floats. Columns [first, first + count) of the tokens [begin, end) of documents.
template <typename T>
void conv_of(const CausalConv& c, const float* w, int64_t begin, int64_t end) {
  const int64_t width = c.w.cols, before = width - 1, channels = c.x.cols;
  for (int64_t d = 0; d < c.documents; ++d) {
    const int64_t from = c.cu_seqlens[d], to = std::min<int64_t>(c.cu_seqlens[d + 1], end);
    const T* state = c.carried.on && c.carried.context[d] != c.cu_seqlens[d + 1] - from
                         ? static_cast<const T*>(c.carried.states) + c.carried.slot[d] * before * channels
                         : nullptr;
    for (int64_t t = std::max(from, begin); t < to; ++t) {
      T* y = row_at<T>(c.y, t);
      for_each(channels, [&](int64_t i, auto part) HWY_ATTR {
        V sum = hn::Zero(F32());
        for (int64_t k = 0; k < width; ++k) {
          const int64_t at = t - before + k - from;  // within the document
          if (at < 0 && !state) continue;
          const T* x = at < 0 ? state + (before + at) * channels : row_at<T>(c.x, from + at);
          sum = hn::MulAdd(load(w + k * channels + i, part), load(x + i, part), sum);
        }
        store(hn::Mul(sum, sigmoid(sum)), y + i, part);
      });
    }
  }
}

constexpr int64_t kMostTaps = 64;

// One block of at most a vector's channels: dz of the last `width` tokens is kept in a ring.
template <typename T, typename P>
HWY_INLINE void conv_grad_block(const CausalConvGrad& c, const float* w, float* dw, int64_t i, P part) {
  const int64_t width = c.w.cols, before = width - 1, channels = c.x.cols;
  const V one = splat(1.0f);
  HWY_ALIGN float ring[kMostTaps * HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float taps[kMostTaps * HWY_MAX_BYTES / sizeof(float)];
  const int64_t step = lanes();
  for (int64_t k = 0; k < width; ++k) store(hn::Zero(F32()), taps + k * step);
  for (int64_t d = 0; d < c.documents; ++d) {
    const int64_t from = c.cu_seqlens[d], n = c.cu_seqlens[d + 1] - from;
    for (int64_t t = n; t-- > 0;) {
      V z = hn::Zero(F32());
      for (int64_t k = std::max<int64_t>(0, before - t); k < width; ++k)
        z = hn::MulAdd(load(w + k * channels + i, part), load(row_at<T>(c.x, from + t - before + k) + i, part), z);
      const V s = sigmoid(z);
      const V slope = hn::MulAdd(hn::Mul(z, s), hn::Sub(one, s), s);
      const V dz = hn::Mul(load(row_at<T>(c.dy, from + t) + i, part), slope);
      store(dz, ring + t % width * step);
      for (int64_t k = std::max<int64_t>(0, before - t); k < width; ++k)
        store(hn::MulAdd(dz, load(row_at<T>(c.x, from + t - before + k) + i, part), load(taps + k * step)),
              taps + k * step);
      if (!c.dx.p) continue;
      V dx = hn::Zero(F32());
      for (int64_t k = 0; k < width; ++k)
        if (t + before - k < n)
          dx = hn::MulAdd(load(w + k * channels + i, part), load(ring + (t + before - k) % width * step), dx);
      store(dx, row_at<T>(c.dx, from + t) + i, part);
    }
  }
  if (dw)
    for (int64_t k = 0; k < width; ++k) store(load(taps + k * step), dw + k * channels + i, part);
}

template <typename T>
void conv_grad_of(const CausalConvGrad& c, const float* w, float* dw, int64_t block) {
  const int64_t i = block * lanes(), left = c.x.cols - i;
  if (left >= lanes())
    conv_grad_block<T>(c, w, dw, i, Whole());
  else
    conv_grad_block<T>(c, w, dw, i, Part{left});
}

void conv_rows(const CausalConv& c, const float* w, int64_t begin, int64_t end) {
  c.x.type == DType::kF32 ? conv_of<float>(c, w, begin, end) : conv_of<uint16_t>(c, w, begin, end);
}
void conv_grad_channels(const CausalConvGrad& c, const float* w, float* dw, int64_t block) {
  c.x.type == DType::kF32 ? conv_grad_of<float>(c, w, dw, block) : conv_grad_of<uint16_t>(c, w, dw, block);
}
int64_t vector_lanes() { return lanes(); }

}  // namespace
}  // namespace mxt::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mxt::kernels::cpu {
namespace {

HWY_EXPORT(conv_rows);
HWY_EXPORT(conv_grad_channels);
HWY_EXPORT(vector_lanes);

// [channels, width] of the graph's type to [width, channels] of floats.
const float* taps_first(const ConstMat& w) {
  float* out = temporary(Slot::kWeight, w.rows * w.cols);
  for (int64_t c = 0; c < w.rows; ++c)
    for (int64_t k = 0; k < w.cols; ++k)
      out[k * w.rows + c] = w.type == DType::kF32 ? static_cast<const float*>(w.p)[c * w.ld + k]
                                                  : bf16_to_float(static_cast<const uint16_t*>(w.p)[c * w.ld + k]);
  return out;
}

// The last width − 1 inputs of each document.
void keep_inputs(const CausalConv& c) {
  const int64_t before = c.w.cols - 1, channels = c.x.cols;
  const size_t bytes = static_cast<size_t>(channels) * size_of(c.x.type);
  for (int64_t d = 0; d < c.documents; ++d) {
    const int64_t from = c.cu_seqlens[d], n = c.cu_seqlens[d + 1] - from;
    auto* state = static_cast<std::byte*>(c.carried.states) + static_cast<size_t>(c.carried.slot[d] * before) * bytes;
    const bool fresh = c.carried.context[d] == n;
    for (int64_t k = 0; k < before; ++k) {  // row k is what lies before − k before the end; ascending, so none is lost
      const int64_t at = n - before + k;
      std::byte* to = state + static_cast<size_t>(k) * bytes;
      if (at >= 0)
        std::memcpy(
            to, static_cast<const std::byte*>(c.x.p) + static_cast<size_t>((from + at) * c.x.ld) * size_of(c.x.type),
            bytes);
      else if (fresh)
        std::memset(to, 0, bytes);
      else
        std::memmove(to, state + static_cast<size_t>(before + at) * bytes, bytes);
    }
  }
}

}  // namespace

void causal_conv(const CausalConv& c) {
  const float* w = taps_first(c.w);
  const auto kernel = HWY_DYNAMIC_DISPATCH(conv_rows);
  parallel_for(0, c.x.rows, rows_per_piece(c.x.cols * c.w.cols),
               [&](int64_t begin, int64_t end) { kernel(c, w, begin, end); });
  if (c.carried.on) keep_inputs(c);
}

void causal_conv_grad(const CausalConvGrad& c) {
  const int64_t channels = c.x.cols, width = c.w.cols, step = HWY_DYNAMIC_DISPATCH(vector_lanes)();
  const float* w = taps_first(c.w);
  float* dw = c.dw ? temporary(Slot::kPartial, channels * width) : nullptr;
  const auto kernel = HWY_DYNAMIC_DISPATCH(conv_grad_channels);
  parallel_for(0, (channels + step - 1) / step, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) kernel(c, w, dw, b);
  });
  if (!dw) return;
  for (int64_t i = 0; i < channels; ++i)
    for (int64_t k = 0; k < width; ++k) {
      float& to = c.dw[i * width + k];
      to = dw[k * channels + i] + (c.accumulate ? to : 0.0f);
    }
}

}  // namespace mxt::kernels::cpu
#endif  // HWY_ONCE
