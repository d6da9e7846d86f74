// What stands around the gated delta rule (kernels/delta.h): the causal convolution, the gated norm, and gates.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kMostWidth = 64;

__device__ __forceinline__ float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
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
  for (int64_t c = threadIdx.x; c < a.channels; c += kThreads) {
    float sum = 0;
    for (int k = 0; k < a.width; ++k)
      sum += get(a.w, a.half, c * a.ldw + k) * input_of(a, d, begin, fresh, t - begin - (a.width - 1) + k, c);
    put(a.y, a.half, t * a.ldy + c, sum * sigmoid(sum));
  }
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
  for (int64_t c = threadIdx.x; c < a.channels; c += kThreads) {
    float sum = 0;
    for (int k = 0; k < a.width; ++k)
      if (t - begin + before - k < n)
        sum += get(a.w, a.half, c * a.ldw + k) * dz_of(a, begin, t - begin + before - k, c);
    put(a.y, a.half, t * a.ldy + c, sum);
  }
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

struct NormArgs {
  const void *x, *gate, *w, *dy;
  void *y, *dx, *dgate;
  float* rstd;
  int64_t ldx, ldg, ldy, lddy, lddx, lddg, rows, heads, dim;
  float eps;
  bool half;
};

// A warp a row's head.
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ NormArgs a) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (at >= a.rows * a.heads) return;
  const int64_t t = at / a.heads, h = at % a.heads * a.dim;
  const int lane = threadIdx.x % kWarp;
  float sum = 0;
  for (int64_t i = lane; i < a.dim; i += kWarp) {
    const float x = get(a.x, a.half, t * a.ldx + h + i);
    sum += x * x;
  }
  const float rstd = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(a.dim) + a.eps);
  if (a.rstd != nullptr && lane == 0) a.rstd[at] = rstd;
  for (int64_t i = lane; i < a.dim; i += kWarp) {
    const float z = get(a.gate, a.half, t * a.ldg + h + i);
    put(a.y, a.half, t * a.ldy + h + i,
        get(a.x, a.half, t * a.ldx + h + i) * rstd * get(a.w, a.half, i) * z * sigmoid(z));
  }
}

__global__ void __launch_bounds__(kThreads) gated_norm_grad_kernel(const __grid_constant__ NormArgs a) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (at >= a.rows * a.heads) return;
  const int64_t t = at / a.heads, h = at % a.heads * a.dim;
  const int lane = threadIdx.x % kWarp;
  const float rstd = a.rstd[at];
  float mean = 0;
  for (int64_t i = lane; i < a.dim; i += kWarp) {
    const float z = get(a.gate, a.half, t * a.ldg + h + i), s = z * sigmoid(z);
    mean +=
        get(a.dy, a.half, t * a.lddy + h + i) * get(a.w, a.half, i) * s * get(a.x, a.half, t * a.ldx + h + i) * rstd;
  }
  mean = warp_sum(mean) / static_cast<float>(a.dim);
  for (int64_t i = lane; i < a.dim; i += kWarp) {
    const float z = get(a.gate, a.half, t * a.ldg + h + i), s = z * sigmoid(z), w = get(a.w, a.half, i),
                dy = get(a.dy, a.half, t * a.lddy + h + i), n = get(a.x, a.half, t * a.ldx + h + i) * rstd;
    put(a.dx, a.half, t * a.lddx + h + i, rstd * (dy * w * s - n * mean));
    put(a.dgate, a.half, t * a.lddg + h + i, dy * n * w * silu_slope(z));
  }
}

// Before the kernel above, which may write over x and gate.
__global__ void __launch_bounds__(kThreads)
    gated_norm_dw_kernel(const __grid_constant__ NormArgs a, int64_t rows_a_chunk, float* partial) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, chunk = blockIdx.y;
  const int64_t first = chunk * rows_a_chunk, last = first + rows_a_chunk < a.rows ? first + rows_a_chunk : a.rows;
  if (i >= a.dim) return;
  float dw = 0;
  for (int64_t t = first; t < last; ++t)
    for (int64_t h = 0; h < a.heads; ++h) {
      const float z = get(a.gate, a.half, t * a.ldg + h * a.dim + i);
      dw += get(a.dy, a.half, t * a.lddy + h * a.dim + i) * get(a.x, a.half, t * a.ldx + h * a.dim + i) *
            a.rstd[t * a.heads + h] * z * sigmoid(z);
    }
  partial[chunk * a.dim + i] = dw;
}

__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_kernel(const void* x, int64_t ldx, const void* gate, int64_t ldg, bool one, void* y, int64_t ldy,
                        int64_t cols, bool half) {
  const int64_t t = blockIdx.x;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads)
    put(y, half, t * ldy + i, get(x, half, t * ldx + i) * sigmoid(get(gate, half, t * ldg + (one ? 0 : i))));
}

__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_grad_kernel(const void* x, int64_t ldx, const void* gate, int64_t ldg, bool one, const void* dy,
                             int64_t lddy, void* dx, int64_t lddx, void* dgate, int64_t lddg, int64_t cols, bool half) {
  __shared__ float space[kThreads / kWarp];
  const int64_t t = blockIdx.x;
  float sum = 0;
  const float whole = one ? sigmoid(get(gate, half, t * ldg)) : 0.0f;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const float s = one ? whole : sigmoid(get(gate, half, t * ldg + i)), g = get(dy, half, t * lddy + i);
    const float d = g * get(x, half, t * ldx + i) * s * (1 - s);
    put(dx, half, t * lddx + i, g * s);
    sum += d;
    if (!one) put(dgate, half, t * lddg + i, d);
  }
  if (!one) return;
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) put(dgate, half, t * lddg, sum);
}

__global__ void __launch_bounds__(kThreads)
    split_kernel(void* all, int64_t lda, void* plain, int64_t ldp, void* gate, int64_t ldg, int64_t cols, int64_t heads,
                 int64_t dim, bool merge, bool half) {
  const int64_t t = blockIdx.x;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const int64_t head = i / (2 * dim), within = i % (2 * dim);
    const bool to_gate = head < heads && within >= dim;
    const int64_t at = head >= heads ? i - heads * dim : head * dim + within - (to_gate ? dim : 0);
    void* part = to_gate ? gate : plain;
    const int64_t other = t * (to_gate ? ldg : ldp) + at, mine = t * lda + i;
    if (half) {
      auto *a = static_cast<bf16*>(all), *p = static_cast<bf16*>(part);
      merge ? a[mine] = p[other] : p[other] = a[mine];
    } else {
      auto *a = static_cast<float*>(all), *p = static_cast<float*>(part);
      merge ? a[mine] = p[other] : p[other] = a[mine];
    }
  }
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

template <typename C>
NormArgs norm_args(const C& g) {
  NormArgs a{};
  a.x = g.x.p, a.gate = g.gate.p, a.w = g.w.p, a.ldx = g.x.ld, a.ldg = g.gate.ld;
  a.rows = g.x.rows, a.dim = g.w.cols, a.heads = g.x.cols / g.w.cols;
  a.half = g.x.type == DType::kBF16;
  return a;
}

}  // namespace

void causal_conv(Stream s, const CausalConv& c) {
  if (c.x.rows == 0 || c.documents == 0) return;
  ConvArgs a = conv_args(c);
  a.y = c.y.p, a.ldy = c.y.ld;
  a.carried = c.carried.on, a.state = c.carried.states, a.slot = c.carried.slot, a.context = c.carried.context;
  conv_kernel<<<static_cast<unsigned>(c.x.rows), kThreads, 0, s>>>(a);
  check_launch("causal_conv");
  if (!a.carried || a.width == 1) return;
  conv_state_kernel<<<dim3(static_cast<unsigned>(ceil_div(a.channels, kThreads)), static_cast<unsigned>(c.documents)),
                      kThreads, 0, s>>>(a);
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
    conv_dx_kernel<<<static_cast<unsigned>(a.rows), kThreads, 0, s>>>(a);
    check_launch("causal_conv_dx");
  }
  if (c.dw == nullptr) return;
  if (chunks > 0) {
    conv_dw_kernel<<<dim3(static_cast<unsigned>(ceil_div(a.channels, kThreads)), static_cast<unsigned>(chunks)),
                     kThreads, 0, s>>>(a, chunk_rows(a.rows), partial);
    check_launch("causal_conv_dw");
  }
  add_chunks(s, partial, chunks, a.channels * a.width, a.channels * a.width, c.dw, c.accumulate);
}

void gated_norm(Stream s, const GatedNorm& g) {
  if (g.x.rows == 0) return;
  NormArgs a = norm_args(g);
  a.y = g.y.p, a.ldy = g.y.ld, a.rstd = g.rstd, a.eps = g.eps;
  gated_norm_kernel<<<static_cast<unsigned>(ceil_div(a.rows * a.heads, kThreads / kWarp)), kThreads, 0, s>>>(a);
  check_launch("gated_norm");
}

size_t gated_norm_grad_scratch(const GatedNormGrad& g) {
  return static_cast<size_t>(chunk_count(g.x.rows) * g.w.cols) * sizeof(float);
}

void gated_norm_grad(Stream s, const GatedNormGrad& g, void* scratch) {
  NormArgs a = norm_args(g);
  a.dy = g.dy.p, a.lddy = g.dy.ld, a.rstd = const_cast<float*>(g.rstd);
  a.dx = g.dx.p, a.lddx = g.dx.ld, a.dgate = g.dgate.p, a.lddg = g.dgate.ld;
  const int64_t chunks = a.rows > 0 ? chunk_count(a.rows) : 0;
  auto* partial = static_cast<float*>(scratch);
  if (g.dw != nullptr) {
    if (chunks > 0) {
      gated_norm_dw_kernel<<<dim3(static_cast<unsigned>(ceil_div(a.dim, kThreads)), static_cast<unsigned>(chunks)),
                             kThreads, 0, s>>>(a, chunk_rows(a.rows), partial);
      check_launch("gated_norm_dw");
    }
    add_chunks(s, partial, chunks, a.dim, a.dim, g.dw, g.accumulate);
  }
  if (a.rows == 0) return;
  gated_norm_grad_kernel<<<static_cast<unsigned>(ceil_div(a.rows * a.heads, kThreads / kWarp)), kThreads, 0, s>>>(a);
  check_launch("gated_norm_grad");
}

void sigmoid_gate(Stream s, const SigmoidGate& g) {
  if (g.y.rows == 0) return;
  sigmoid_gate_kernel<<<static_cast<unsigned>(g.y.rows), kThreads, 0, s>>>(
      g.x.p, g.x.ld, g.gate.p, g.gate.ld, g.gate.cols == 1, g.y.p, g.y.ld, g.y.cols, g.y.type == DType::kBF16);
  check_launch("sigmoid_gate");
}

void sigmoid_gate_grad(Stream s, const SigmoidGateGrad& g) {
  if (g.dy.rows == 0) return;
  sigmoid_gate_grad_kernel<<<static_cast<unsigned>(g.dy.rows), kThreads, 0, s>>>(
      g.x.p, g.x.ld, g.gate.p, g.gate.ld, g.gate.cols == 1, g.dy.p, g.dy.ld, g.dx.p, g.dx.ld, g.dgate.p, g.dgate.ld,
      g.dy.cols, g.dy.type == DType::kBF16);
  check_launch("sigmoid_gate_grad");
}

void split_gates(Stream s, const SplitGates& g) {
  if (g.all.rows == 0) return;
  split_kernel<<<static_cast<unsigned>(g.all.rows), kThreads, 0, s>>>(
      g.all.p, g.all.ld, g.plain.p, g.plain.ld, g.gate.p, g.gate.ld, g.all.cols, g.gate.cols / g.dim, g.dim, g.merge,
      g.all.type == DType::kBF16);
  check_launch("split_gates");
}

}  // namespace mxt::kernels::MXT_GPU_NS
