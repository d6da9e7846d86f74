// The causal convolution before the gated delta rule (kernels/delta.h): any width, type and carried state by one thread
// a result; bf16 of width 4 (every model known) in strips.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kMostWidth = 64;

// The document that token t is of: the last that begins at or before it and is not empty.
__device__ __forceinline__ int64_t document_of(const int32_t* cu, int64_t documents, int64_t t) {
  int64_t low = 0, high = documents;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cu[middle] <= t)
      low = middle;
    else
      high = middle;
  }
  return low;
}

struct ConvArgs {
  const void *x, *w, *dy;
  void *y, *state;
  const int32_t *cu, *slot, *context;
  int64_t ldx, ldw, ldy, lddy, documents, channels, rows;
  int width;
  bool half, carried;
};

// x of a document's token t (below 0: what came before it) and channel c.
__device__ __forceinline__ float input_of(const ConvArgs& a, int64_t d, int64_t begin, bool fresh, int64_t t,
                                          int64_t c) {
  if (t >= 0) return get(a.x, a.half, (begin + t) * a.ldx + c);
  if (fresh) return 0.0f;
  const int64_t before = a.width - 1;
  return get(a.state, a.half, (a.slot[d] * before + before + t) * a.channels + c);
}

__global__ void __launch_bounds__(kThreads) conv_kernel(const __grid_constant__ ConvArgs a) {
  __shared__ int64_t document;
  const int64_t t = blockIdx.x;
  if (threadIdx.x == 0) document = document_of(a.cu, a.documents, t);
  __syncthreads();
  const int64_t d = document, begin = a.cu[d];
  const bool fresh = !a.carried || a.context[d] == a.cu[d + 1] - begin;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= a.channels) return;
  float sum = 0;
  for (int k = 0; k < a.width; ++k)
    sum += get(a.w, a.half, c * a.ldw + k) * input_of(a, d, begin, fresh, t - begin - (a.width - 1) + k, c);
  put(a.y, a.half, t * a.ldy + c, sum * sigmoid(sum));
}

// After the kernel above: the last rows of each document.
__global__ void __launch_bounds__(kThreads) conv_state_kernel(const __grid_constant__ ConvArgs a) {
  const int64_t d = blockIdx.y, c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, before = a.width - 1;
  if (c >= a.channels) return;
  const int64_t begin = a.cu[d], n = a.cu[d + 1] - begin;
  const bool fresh = a.context[d] == n;
  // Row i takes what stood later: the read is ahead of the write.
  for (int64_t i = 0; i < before; ++i)
    put(a.state, a.half, (a.slot[d] * before + i) * a.channels + c, input_of(a, d, begin, fresh, n + i - before, c));
}

// The slope of token t's result times its gradient.
__device__ __forceinline__ float dz_of(const ConvArgs& a, int64_t begin, int64_t t, int64_t c) {
  float z = 0;
  for (int k = 0; k < a.width; ++k)
    z += get(a.w, a.half, c * a.ldw + k) * input_of(a, 0, begin, true, t - (a.width - 1) + k, c);
  return get(a.dy, a.half, (begin + t) * a.lddy + c) * silu_slope(z);
}

__global__ void __launch_bounds__(kThreads) conv_dx_kernel(const __grid_constant__ ConvArgs a) {
  __shared__ int64_t document;
  const int64_t t = blockIdx.x;
  if (threadIdx.x == 0) document = document_of(a.cu, a.documents, t);
  __syncthreads();
  const int64_t begin = a.cu[document], n = a.cu[document + 1] - begin, before = a.width - 1;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= a.channels) return;
  float sum = 0;
  for (int k = 0; k < a.width; ++k)
    if (t - begin + before - k < n) sum += get(a.w, a.half, c * a.ldw + k) * dz_of(a, begin, t - begin + before - k, c);
  put(a.y, a.half, t * a.ldy + c, sum);
}

// partial[chunk][c·width + k]
__global__ void __launch_bounds__(kThreads)
    conv_dw_kernel(const __grid_constant__ ConvArgs a, int64_t rows_a_chunk, float* partial) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, chunk = blockIdx.y;
  const int64_t first = chunk * rows_a_chunk, last = first + rows_a_chunk < a.rows ? first + rows_a_chunk : a.rows;
  if (c >= a.channels) return;
  float dw[kMostWidth];
  for (int k = 0; k < a.width; ++k) dw[k] = 0;
  int64_t d = document_of(a.cu, a.documents, first);
  for (int64_t t = first; t < last; ++t) {
    while (t >= a.cu[d + 1]) ++d;
    const int64_t begin = a.cu[d];
    const float dz = dz_of(a, begin, t - begin, c);
    for (int k = 0; k < a.width; ++k) dw[k] += dz * input_of(a, 0, begin, true, t - begin - (a.width - 1) + k, c);
  }
  for (int k = 0; k < a.width; ++k) partial[(chunk * a.channels + c) * a.width + k] = dw[k];
}

// --- 8 channels a thread, a strip of tokens one after another: each row is read once ---

constexpr int kStrip = 32, kAtOnce = 8, kStripThreads = 128, kAhead = 4;  // rows on their way together

struct Taps {
  float w[kAtOnce];
};
// A window of the last kWidth rows of 8 channels; [0] is the newest. Rows before a document's first are zero.
template <int kWidth>
struct Window {
  float x[kWidth][kAtOnce];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) x[k][i] = 0.0f;
  }
  __device__ __forceinline__ void push(const float (&f)[kAtOnce]) {
#pragma unroll
    for (int k = kWidth - 1; k > 0; --k)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) x[k][i] = x[k - 1][i];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) x[0][i] = f[i];
  }
};
template <int kWidth>
__device__ __forceinline__ void load_taps(const ConvArgs& a, int64_t c, Taps (&w)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
    for (int k = 0; k < kWidth; ++k) w[k].w[i] = to_float(static_cast<const bf16*>(a.w)[(c + i) * a.ldw + k]);
}
template <int kWidth>
__device__ __forceinline__ float convolve(const Window<kWidth>& x, const Taps (&w)[kWidth], int i) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sum += w[k].w[i] * x.x[kWidth - 1 - k][i];
  return sum;
}

// Documents as a strip meets them.
struct Place {
  int64_t d, begin, end;
  __device__ __forceinline__ Place(const ConvArgs& a, int64_t t) : d(document_of(a.cu, a.documents, t)) { at(a); }
  __device__ __forceinline__ void at(const ConvArgs& a) { begin = a.cu[d], end = a.cu[d + 1]; }
  // Whether t is the first token of a document.
  __device__ __forceinline__ bool moved(const ConvArgs& a, int64_t t) {
    if (t < end) return t == begin;
    while (t >= end) ++d, at(a);
    return true;
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kStripThreads) conv_strip_kernel(const __grid_constant__ ConvArgs a) {
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * kStripThreads + threadIdx.x) * kAtOnce,
                first = static_cast<int64_t>(blockIdx.y) * kStrip;
  if (c >= a.channels) return;
  Taps w[kWidth];
  load_taps(a, c, w);
  Place place(a, first);
  Window<kWidth> x;
  x.clear();
  float f[kAtOnce];
  for (int64_t t = first - kWidth + 1 > place.begin ? first - kWidth + 1 : place.begin; t < first; ++t) {
    load<bf16, kAtOnce>(a.x, t * a.ldx + c).unpack(f);
    x.push(f);
  }
  const int64_t last = first + kStrip < a.rows ? first + kStrip : a.rows;
  for (int64_t from = first; from < last; from += kAhead) {
    Raw<bf16, kAtOnce> rows[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (from + k < last) rows[k] = load<bf16, kAtOnce>(a.x, (from + k) * a.ldx + c);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t t = from + k;
      if (t >= last) break;
      if (place.moved(a, t)) x.clear();
      rows[k].unpack(f);
      x.push(f);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float sum = convolve(x, w, i);
        f[i] = sum * quick_sigmoid(sum);
      }
      store<bf16, kAtOnce>(a.y, t * a.ldy + c, Raw<bf16, kAtOnce>::pack(f));
    }
  }
}

// dx of a strip: token t's is known when dz of the kWidth − 1 after it are, or when its document has ended.
template <int kWidth>
__global__ void __launch_bounds__(kStripThreads) conv_strip_dx_kernel(const __grid_constant__ ConvArgs a) {
  constexpr int kBefore = kWidth - 1;
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * kStripThreads + threadIdx.x) * kAtOnce,
                first = static_cast<int64_t>(blockIdx.y) * kStrip;
  if (c >= a.channels) return;
  Taps w[kWidth];
  load_taps(a, c, w);
  Place place(a, first);
  Window<kWidth> x, dz;
  x.clear(), dz.clear();
  float f[kAtOnce], dy[kAtOnce];
  for (int64_t t = first - kBefore > place.begin ? first - kBefore : place.begin; t < first; ++t) {
    load<bf16, kAtOnce>(a.x, t * a.ldx + c).unpack(f);
    x.push(f);
  }
  const int64_t end = first + kStrip < a.rows ? first + kStrip : a.rows;
  int64_t document = place.begin > first ? place.begin : first;  // no token before it waits for its dx
  // dx of the token kBefore before the newest.
  const auto emit = [&](int64_t newest) {
    const int64_t t = newest - kBefore;
    if (t < document || t >= end) return;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum += w[k].w[i] * dz.x[k][i];
      f[i] = sum;
    }
    store<bf16, kAtOnce>(a.y, t * a.ldy + c, Raw<bf16, kAtOnce>::pack(f));
  };
  const auto finish = [&](int64_t next) {  // `next`: the first token that is not of the document
    constexpr float kZero[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kBefore; ++k) dz.push(kZero), emit(next + k);
  };
  const int64_t last = end + kBefore < a.rows ? end + kBefore : a.rows;
  for (int64_t from = first; from < last; from += kAhead) {
    Raw<bf16, kAtOnce> rows[kAhead], grads[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (from + k < last) {
        rows[k] = load<bf16, kAtOnce>(a.x, (from + k) * a.ldx + c);
        grads[k] = load<bf16, kAtOnce>(a.dy, (from + k) * a.lddy + c);
      }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t t = from + k;
      if (t >= last) break;
      if (place.moved(a, t) && t > first) {
        finish(t);
        if (t >= end) return;
        x.clear(), dz.clear();
        document = t;
      }
      rows[k].unpack(f), grads[k].unpack(dy);
      x.push(f);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) dy[i] *= quick_silu_slope(convolve(x, w, i));
      dz.push(dy);
      emit(t);
    }
  }
  if (last == a.rows) finish(last);
}

bool by_strips(const ConvArgs& a, const void* y, int64_t ldy) {
  const auto packs = [](const void* p, int64_t ld) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && ld % kAtOnce == 0;
  };
  return a.half && !a.carried && a.width == 4 && a.channels % kAtOnce == 0 && packs(a.x, a.ldx) && packs(y, ldy);
}
dim3 strips(const ConvArgs& a) {
  return {static_cast<unsigned>(ceil_div(a.channels, kAtOnce * kStripThreads)),
          static_cast<unsigned>(ceil_div(a.rows, kStrip))};
}

template <typename C>
ConvArgs conv_args(const C& c) {
  ConvArgs a{};
  a.x = c.x.p, a.w = c.w.p, a.ldx = c.x.ld, a.ldw = c.w.ld;
  a.cu = c.cu_seqlens, a.documents = c.documents, a.channels = c.x.cols, a.rows = c.x.rows;
  a.width = static_cast<int>(c.w.cols);
  a.half = c.x.type == DType::kBF16;
  return a;
}

// Blocks over the channels of a token.
unsigned pieces(const ConvArgs& a) { return static_cast<unsigned>(ceil_div(a.channels, kThreads)); }

}  // namespace

void causal_conv(Stream s, const CausalConv& c) {
  if (c.x.rows == 0 || c.documents == 0) return;
  ConvArgs a = conv_args(c);
  a.y = c.y.p, a.ldy = c.y.ld;
  a.carried = c.carried.on, a.state = c.carried.states, a.slot = c.carried.slot, a.context = c.carried.context;
  if (by_strips(a, a.y, a.ldy)) {
    conv_strip_kernel<4><<<strips(a), kStripThreads, 0, s>>>(a);
    return check_launch("causal_conv");
  }
  conv_kernel<<<dim3(static_cast<unsigned>(c.x.rows), pieces(a)), kThreads, 0, s>>>(a);
  check_launch("causal_conv");
  if (!a.carried || a.width == 1) return;
  conv_state_kernel<<<dim3(pieces(a), static_cast<unsigned>(c.documents)), kThreads, 0, s>>>(a);
  check_launch("causal_conv_state");
}

size_t causal_conv_grad_scratch(const CausalConvGrad& c) {
  return static_cast<size_t>(chunk_count(c.x.rows) * c.x.cols * c.w.cols) * sizeof(float);
}

void causal_conv_grad(Stream s, const CausalConvGrad& c, void* scratch) {
  ConvArgs a = conv_args(c);
  a.dy = c.dy.p, a.lddy = c.dy.ld, a.y = c.dx.p, a.ldy = c.dx.ld;
  const int64_t chunks = a.rows > 0 && a.documents > 0 ? chunk_count(a.rows) : 0;
  auto* partial = static_cast<float*>(scratch);
  if (c.dx.p != nullptr && chunks > 0) {
    if (by_strips(a, a.y, a.ldy) && a.lddy % kAtOnce == 0 && reinterpret_cast<uintptr_t>(a.dy) % 16 == 0)
      conv_strip_dx_kernel<4><<<strips(a), kStripThreads, 0, s>>>(a);
    else
      conv_dx_kernel<<<dim3(static_cast<unsigned>(a.rows), pieces(a)), kThreads, 0, s>>>(a);
    check_launch("causal_conv_dx");
  }
  if (c.dw == nullptr) return;
  if (chunks > 0) {
    conv_dw_kernel<<<dim3(pieces(a), static_cast<unsigned>(chunks)), kThreads, 0, s>>>(a, chunk_rows(a.rows), partial);
    check_launch("causal_conv_dw");
  }
  add_chunks(s, partial, chunks, a.channels * a.width, a.channels * a.width, c.dw, c.accumulate);
}

}  // namespace mxt::kernels::MXT_GPU_NS
