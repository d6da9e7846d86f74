// Activations, additions, bias gradients and dropout: one pass over memory each, 16 bytes a thread where shapes allow.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"
#include "kernels/gpu/random.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256;

// Grid of rows × column blocks: rows on x, which may be long.
template <int V>
dim3 grid_for(int64_t rows, int64_t cols) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(ceil_div(cols / V, kThreads)));
}

template <typename T>
__device__ __forceinline__ float exponential(float x);
template <>
__device__ __forceinline__ float exponential<float>(float x) {
  return expf(x);
}
template <>
__device__ __forceinline__ float exponential<bf16>(float x) {  // error 2 ulp of fp32: far below bf16's rounding
  return __expf(x);
}

__device__ __forceinline__ bool is_gated(Activation kind) {
  return kind == Activation::kSwiGlu || kind == Activation::kGeGlu;
}

template <typename T>
__device__ __forceinline__ float inverse(float x);
template <>
__device__ __forceinline__ float inverse<float>(float x) {
  return 1.0f / x;
}
template <>
__device__ __forceinline__ float inverse<bf16>(float x) {  // 0 from 2^126 on, where σ is no bf16 either
  return __fdividef(1.0f, x);
}

template <typename T>
__device__ __forceinline__ void activation(Activation kind, float x, float& value, float& slope) {
  switch (kind) {
    case Activation::kSwiGlu: {
      const float s = 1.0f / (1.0f + exponential<T>(-x));
      value = x * s;
      slope = s * (1.0f + x * (1.0f - s));
      break;
    }
    case Activation::kGeGlu:
    case Activation::kGeluTanh: {
      const float c = 0.7978845608028654f, a = 0.044715f;
      // (1 + tanh u)/2 = σ(2u), which loses nothing where it is small.
      const float s = inverse<T>(1.0f + exponential<T>(-2.0f * c * (x + a * x * x * x)));
      value = x * s;
      slope = s + x * s * (1.0f - s) * 2.0f * c * (1.0f + 3.0f * a * x * x);
      break;
    }
    case Activation::kGelu: {
      const float cdf = 0.5f * erfcf(-x * 0.7071067811865476f);
      value = x * cdf;
      slope = cdf + x * expf(-0.5f * x * x) * 0.3989422804014327f;
      break;
    }
    case Activation::kRelu2:
      value = x < 0 ? 0.0f : x * x;  // what is no number stays none
      slope = x < 0 ? 0.0f : 2.0f * x;
      break;
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    act_kernel(Activation kind, const void* x, int64_t ldx, void* y, int64_t ldy, int64_t cols) {
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row = row_of_block(), i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= cols) return;
  const Raw<T, V> raw = load<T, V>(x, row * ldx + i);
  float f[V], up[V], slope;
  if (is_gated(kind)) load<T, V>(x, row * ldx + cols + i).unpack(up);
  raw.unpack(f);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    float v;
    activation<T>(kind, f[k], v, slope);
    f[k] = is_gated(kind) ? v * up[k] : v;
  }
  store<T, V>(y, row * ldy + i, Raw<T, V>::pack(f));
}

// One block a row, since y is held too. y itself is written where it is kept, and where it does not fit in registers.
template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads)
    act_held_kernel(Activation kind, const void* x, int64_t ldx, void* y, int64_t ldy, int64_t cols, uint8_t* q,
                    int64_t ldq, float* scale, bool keep) {
  __shared__ float space[kRowThreads / 32];
  const int64_t row = row_of_block(), packs = cols / V, step = blockDim.x, tid = threadIdx.x;
  const bool writes = keep || packs > kRowPacks * step;
  Raw<T, V> kept[kRowPacks], ups[kRowPacks];
  // Once for each kind that is known here: what depends on it is then decided before the row, not for every element.
  auto make = [&](Activation of) {
    const bool glu = is_gated(of);
    auto take = [&](const Raw<T, V>& first, const Raw<T, V>& second, int64_t i) {
      float f[V], up[V], v, slope;
      first.unpack(f);
      if (glu) second.unpack(up);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        activation<T>(of, f[k], v, slope);
        f[k] = glu ? v * up[k] : v;
      }
      const Raw<T, V> out = Raw<T, V>::pack(f);
      if (writes) store<T, V>(y, row * ldy + i * V, out);
      return out;
    };
#pragma unroll
    for (int j = 0; j < kRowPacks; ++j)
      if (const int64_t i = tid + j * step; i < packs) {
        kept[j] = load<T, V>(x, row * ldx + i * V);
        if (glu) ups[j] = load<T, V>(x, row * ldx + cols + i * V);
      }
#pragma unroll
    for (int j = 0; j < kRowPacks; ++j)
      if (const int64_t i = tid + j * step; i < packs) kept[j] = take(kept[j], ups[j], i);
    for (int64_t i = tid + kRowPacks * step; i < packs; i += step)
      take(load<T, V>(x, row * ldx + i * V), load<T, V>(x, row * ldx + (glu ? cols : 0) + i * V), i);
  };
  switch (kind) {
    case Activation::kRelu2:
      make(Activation::kRelu2);
      break;
    case Activation::kSwiGlu:
      make(Activation::kSwiGlu);
      break;
    default:
      make(kind);
  }
  hold_row<T, V>(kept, y, row * ldy, packs, Channels{nullptr}, q + row * ldq, scale + row, space);
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) act_grad_kernel(Activation kind, const void* x, int64_t ldx, const void* dy,
                                                            int64_t lddy, void* dx, int64_t lddx, int64_t cols) {
  const int64_t row = row_of_block(), i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= cols) return;
  const bool glu = is_gated(kind);
  const Raw<T, V> rx = load<T, V>(x, row * ldx + i), rdy = load<T, V>(dy, row * lddy + i);
  const Raw<T, V> rup = glu ? load<T, V>(x, row * ldx + cols + i) : rx;
  float f[V], d[V], up[V];
  rx.unpack(f);
  rdy.unpack(d);
  rup.unpack(up);
#pragma unroll
  for (int k = 0; k < V; ++k) {
    float v, slope;
    activation<T>(kind, f[k], v, slope);
    f[k] = d[k] * slope * (glu ? up[k] : 1.0f);
    up[k] = d[k] * v;
  }
  store<T, V>(dx, row * lddx + i, Raw<T, V>::pack(f));
  if (glu) store<T, V>(dx, row * lddx + cols + i, Raw<T, V>::pack(up));
}

// The same where x is not gated and dx is held too: a block a row.
template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads)
    act_grad_held_kernel(Activation kind, const void* x, int64_t ldx, const void* dy, int64_t lddy, void* dx,
                         int64_t lddx, int64_t cols, uint8_t* q, int64_t ldq, const float* channel, float* scale,
                         bool keep) {
  __shared__ float space[kRowThreads / 32];
  const int64_t row = row_of_block(), packs = cols / V, step = blockDim.x, tid = threadIdx.x;
  const bool writes = keep || packs > kRowPacks * step;
  Raw<T, V> kept[kRowPacks], grads[kRowPacks];
  auto make = [&](Activation of) {
    auto take = [&](const Raw<T, V>& of_x, const Raw<T, V>& of_dy, int64_t i) {
      float f[V], d[V], v, slope;
      of_x.unpack(f);
      of_dy.unpack(d);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        activation<T>(of, f[k], v, slope);
        f[k] = d[k] * slope;
      }
      const Raw<T, V> out = Raw<T, V>::pack(f);
      if (writes) store<T, V>(dx, row * lddx + i * V, out);
      return out;
    };
#pragma unroll
    for (int j = 0; j < kRowPacks; ++j)
      if (const int64_t i = tid + j * step; i < packs)
        kept[j] = load<T, V>(x, row * ldx + i * V), grads[j] = load<T, V>(dy, row * lddy + i * V);
#pragma unroll
    for (int j = 0; j < kRowPacks; ++j)
      if (const int64_t i = tid + j * step; i < packs) kept[j] = take(kept[j], grads[j], i);
    for (int64_t i = tid + kRowPacks * step; i < packs; i += step)
      take(load<T, V>(x, row * ldx + i * V), load<T, V>(dy, row * lddy + i * V), i);
  };
  if (kind == Activation::kRelu2)
    make(Activation::kRelu2);
  else
    make(kind);
  hold_row<T, V>(kept, dx, row * lddx, packs, Channels{channel}, q + row * ldq, scale + row, space);
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const void* a, int64_t lda, const void* b, int64_t ldb, void* y, int64_t ldy, int64_t cols) {
  const int64_t row = blockIdx.x, i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= cols) return;
  const Raw<T, V> ra = load<T, V>(a, row * lda + i), rb = load<T, V>(b, row * ldb + i);
  float f[V], g[V];
  ra.unpack(f);
  rb.unpack(g);
#pragma unroll
  for (int k = 0; k < V; ++k) f[k] += g[k];
  store<T, V>(y, row * ldy + i, Raw<T, V>::pack(f));
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const void* x, int64_t ldx, void* y, int64_t ldy, int64_t cols, float scale) {
  const int64_t row = blockIdx.x, i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= cols) return;
  float f[V];
  load<T, V>(x, row * ldx + i).unpack(f);
#pragma unroll
  for (int k = 0; k < V; ++k) f[k] *= scale;
  store<T, V>(y, row * ldy + i, Raw<T, V>::pack(f));
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) add_bias_kernel(void* y, int64_t ld, Weights bias, int64_t cols) {
  const int64_t row = blockIdx.x, i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= cols) return;
  float f[V], b[V];
  load<T, V>(y, row * ld + i).unpack(f);
  bias.get<V>(i, b, 0.0f);
#pragma unroll
  for (int k = 0; k < V; ++k) f[k] += b[k];
  store<T, V>(y, row * ld + i, Raw<T, V>::pack(f));
}

template <typename T, int V>
__global__ void __launch_bounds__(256)
    bias_columns(const void* dy, int64_t ld, int64_t rows, int64_t cols, int64_t rows_per_chunk, float* partial) {
  __shared__ float space[8][32 * V];
  const int lane = threadIdx.x % 32, deep = threadIdx.x / 32;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * V;
  const int64_t first = blockIdx.y * rows_per_chunk;
  const int64_t last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
  float sums[V] = {};
  if (col < cols)
    for (int64_t t = first + deep; t < last; t += 8) {
      float f[V];
      load<T, V>(dy, t * ld + col).unpack(f);
#pragma unroll
      for (int k = 0; k < V; ++k) sums[k] += f[k];
    }
#pragma unroll
  for (int k = 0; k < V; ++k) space[deep][lane * V + k] = sums[k];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * V; i += 256) {
    const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 * V + i;
    if (c >= cols) continue;
    float sum = 0;
    for (int d = 0; d < 8; ++d) sum += space[d][i];
    partial[blockIdx.y * cols + c] = sum;
  }
}

// Four elements a thread: one draw. Elements are counted over the whole matrix, so a draw may span two rows; before the
// matrix there are `before` ones.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const void* x, int64_t ldx, void* y, int64_t ldy, int64_t rows, int64_t cols, uint64_t threshold,
                   float scale, uint64_t seed, uint64_t stream, int64_t before) {
  const int64_t place = before / 4 + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t first = place * 4 - before;
  if (first >= rows * cols) return;
  const uint4 d = philox(seed, stream, static_cast<uint64_t>(place));
  const uint32_t draw[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t e = first + k;
    if (e < 0) continue;
    if (e >= rows * cols) return;
    const int64_t row = e / cols, col = e % cols;
    const float v = to_float(static_cast<const T*>(x)[row * ldx + col]);
    static_cast<T*>(y)[row * ldy + col] = from_float<T>(draw[k] >= threshold ? v * scale : 0.0f);
  }
}

}  // namespace

void act(Stream s, const Act& a) {
  if (a.y.rows == 0 || a.y.cols == 0) return;
  // gate and up are read apart: both begin where the width allows it.
  const bool is_wide = wide(a.x) && wide(ConstMat(a.y)) && wide(a.held);
  if (a.held.q.p != nullptr) {
    MXT_GPU_DISPATCH(a.x.type, is_wide,
                     act_held_kernel<T, V><<<static_cast<unsigned>(a.y.rows), row_threads(a.y.cols / V), 0, s>>>(
                         a.kind, a.x.p, a.x.ld, a.y.p, a.y.ld, a.y.cols, static_cast<uint8_t*>(a.held.q.p), a.held.q.ld,
                         a.held.scale, a.keep_y));
    check_launch("act");
    return;
  }
  MXT_GPU_DISPATCH(a.x.type, is_wide,
                   launch_dependent(act_kernel<T, V>, grid_for<V>(a.y.rows, a.y.cols), dim3(kThreads), 0, s, a.kind,
                                    a.x.p, a.x.ld, a.y.p, a.y.ld, a.y.cols));
  check_launch("act");
}

void act_grad(Stream s, const ActGrad& a) {
  if (a.dy.rows == 0 || a.dy.cols == 0) return;
  const bool held = a.held.q.p != nullptr;
  const bool is_wide = wide(a.x) && wide(a.dy) && wide(ConstMat(a.dx)) && wide(a.held);
  if (held && !gated(a.kind)) {
    MXT_GPU_DISPATCH(a.x.type, is_wide,
                     act_grad_held_kernel<T, V><<<static_cast<unsigned>(a.dy.rows), row_threads(a.dy.cols / V), 0, s>>>(
                         a.kind, a.x.p, a.x.ld, a.dy.p, a.dy.ld, a.dx.p, a.dx.ld, a.dy.cols,
                         static_cast<uint8_t*>(a.held.q.p), a.held.q.ld, a.held.channel, a.held.scale, a.keep_dx));
    check_launch("act_grad");
    return;
  }
  MXT_GPU_DISPATCH(a.x.type, is_wide,
                   act_grad_kernel<T, V><<<grid_for<V>(a.dy.rows, a.dy.cols), kThreads, 0, s>>>(
                       a.kind, a.x.p, a.x.ld, a.dy.p, a.dy.ld, a.dx.p, a.dx.ld, a.dy.cols));
  check_launch("act_grad");
  if (held) quantize(s, {a.dx, a.held.channel, a.held.q, a.held.scale});
}

void add(Stream s, const Add& a) {
  if (a.y.rows == 0 || a.y.cols == 0) return;
  const bool is_wide = wide(a.a) && wide(a.b) && wide(ConstMat(a.y));
  MXT_GPU_DISPATCH(a.y.type, is_wide,
                   add_kernel<T, V><<<grid_for<V>(a.y.rows, a.y.cols), kThreads, 0, s>>>(a.a.p, a.a.ld, a.b.p, a.b.ld,
                                                                                         a.y.p, a.y.ld, a.y.cols));
  check_launch("add");
}

void copy(Stream s, const Copy& c) {
  if (c.y.rows == 0 || c.y.cols == 0) return;
  const bool is_wide = wide(c.x) && wide(ConstMat(c.y));
  MXT_GPU_DISPATCH(c.y.type, is_wide,
                   copy_kernel<T, V><<<grid_for<V>(c.y.rows, c.y.cols), kThreads, 0, s>>>(c.x.p, c.x.ld, c.y.p, c.y.ld,
                                                                                          c.y.cols, c.scale));
  check_launch("copy");
}

void add_bias(Stream s, const Mat& y, const void* bias, DType bias_type) {
  if (y.rows == 0 || y.cols == 0) return;
  const Weights b{bias, bias_type == DType::kBF16};
  MXT_GPU_DISPATCH(y.type, wide(ConstMat(y)) && wide(bias),
                   add_bias_kernel<T, V><<<grid_for<V>(y.rows, y.cols), kThreads, 0, s>>>(y.p, y.ld, b, y.cols));
  check_launch("add_bias");
}

size_t bias_grad_scratch(const BiasGrad& b) {
  return static_cast<size_t>(chunk_count(b.dy.rows) * b.dy.cols) * sizeof(float);
}

void bias_grad(Stream s, const BiasGrad& b, void* scratch) {
  const int64_t chunks = b.dy.rows > 0 ? chunk_count(b.dy.rows) : 0;
  auto* partial = static_cast<float*>(scratch);
  if (chunks > 0) {
    MXT_GPU_DISPATCH(
        b.dy.type, wide(b.dy),
        bias_columns<T, V>
        <<<dim3(static_cast<unsigned>(ceil_div(b.dy.cols, 32 * V)), static_cast<unsigned>(chunks)), 256, 0, s>>>(
            b.dy.p, b.dy.ld, b.dy.rows, b.dy.cols, chunk_rows(b.dy.rows), partial));
    check_launch("bias_columns");
  }
  add_chunks(s, partial, chunks, b.dy.cols, b.dy.cols, b.db, b.accumulate);
}

void dropout(Stream s, const Dropout& d) {
  const int64_t n = d.x.rows * d.x.cols, before = d.first_row * d.x.cols;
  if (n == 0) return;
  const auto threshold = static_cast<uint64_t>(static_cast<double>(d.p) * 0x1p32);
  const auto scale = static_cast<float>(1.0 / (1.0 - static_cast<double>(d.p)));
  const auto blocks = static_cast<unsigned>(ceil_div(n + before % 4, 4 * kThreads));
  if (d.x.type == DType::kBF16)
    dropout_kernel<bf16><<<blocks, kThreads, 0, s>>>(d.x.p, d.x.ld, d.y.p, d.y.ld, d.x.rows, d.x.cols, threshold, scale,
                                                     d.seed, d.stream, before);
  else
    dropout_kernel<float><<<blocks, kThreads, 0, s>>>(d.x.p, d.x.ld, d.y.p, d.y.ld, d.x.rows, d.x.cols, threshold,
                                                      scale, d.seed, d.stream, before);
  check_launch("dropout");
}

}  // namespace mxt::kernels::MXT_GPU_NS
