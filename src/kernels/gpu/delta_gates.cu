// What stands around the gated delta rule (kernels/delta.h): the gated norm, and gates.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256;

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

// bf16 heads of 128 columns (Qwen3.5's): 16 lanes a row's head, 8 columns a lane.
constexpr int kPack = 8, kPackLanes = 16, kPackDim = kPack * kPackLanes;

__device__ __forceinline__ float over_pack_lanes(float v) {
#pragma unroll
  for (int m = kPackLanes / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}

__global__ void __launch_bounds__(kThreads) gated_norm_pack_kernel(const __grid_constant__ NormArgs a) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * (kThreads / kPackLanes) + threadIdx.x / kPackLanes;
  const bool mine = place < a.rows * a.heads;
  const int64_t at = mine ? place : 0, t = at / a.heads, i = at % a.heads * a.dim + threadIdx.x % kPackLanes * kPack;
  float x[kPack], z[kPack], w[kPack], sum = 0;
  load<bf16, kPack>(a.x, t * a.ldx + i).unpack(x);
  load<bf16, kPack>(a.gate, t * a.ldg + i).unpack(z);
  load<bf16, kPack>(a.w, i % a.dim).unpack(w);
#pragma unroll
  for (int k = 0; k < kPack; ++k) sum += x[k] * x[k];
  const float rstd = 1.0f / sqrtf(over_pack_lanes(sum) / static_cast<float>(a.dim) + a.eps);
  if (!mine) return;
  if (a.rstd != nullptr && threadIdx.x % kPackLanes == 0) a.rstd[at] = rstd;
#pragma unroll
  for (int k = 0; k < kPack; ++k) x[k] = x[k] * rstd * w[k] * z[k] * quick_sigmoid(z[k]);
  store<bf16, kPack>(a.y, t * a.ldy + i, Raw<bf16, kPack>::pack(x));
}

__global__ void __launch_bounds__(kThreads) gated_norm_grad_pack_kernel(const __grid_constant__ NormArgs a) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * (kThreads / kPackLanes) + threadIdx.x / kPackLanes;
  const bool mine = place < a.rows * a.heads;
  const int64_t at = mine ? place : 0, t = at / a.heads, i = at % a.heads * a.dim + threadIdx.x % kPackLanes * kPack;
  const float rstd = a.rstd[at];
  float x[kPack], z[kPack], w[kPack], dy[kPack], mean = 0;
  load<bf16, kPack>(a.x, t * a.ldx + i).unpack(x);
  load<bf16, kPack>(a.gate, t * a.ldg + i).unpack(z);
  load<bf16, kPack>(a.dy, t * a.lddy + i).unpack(dy);
  load<bf16, kPack>(a.w, i % a.dim).unpack(w);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    x[k] *= rstd;
    mean += dy[k] * w[k] * z[k] * quick_sigmoid(z[k]) * x[k];
  }
  mean = over_pack_lanes(mean) / static_cast<float>(a.dim);
  if (!mine) return;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    const float slope = dy[k] * x[k] * w[k] * quick_silu_slope(z[k]);
    x[k] = rstd * (dy[k] * w[k] * z[k] * quick_sigmoid(z[k]) - x[k] * mean);
    z[k] = slope;
  }
  store<bf16, kPack>(a.dx, t * a.lddx + i, Raw<bf16, kPack>::pack(x));
  store<bf16, kPack>(a.dgate, t * a.lddg + i, Raw<bf16, kPack>::pack(z));
}

bool packs(const void* p, int64_t ld) {
  return p == nullptr || (reinterpret_cast<uintptr_t>(p) % 16 == 0 && ld % kPack == 0);
}
bool by_packs(const NormArgs& a) {
  return a.half && a.dim == kPackDim && packs(a.x, a.ldx) && packs(a.gate, a.ldg) && packs(a.w, 0) &&
         packs(a.dy, a.lddy) && packs(a.y, a.ldy) && packs(a.dx, a.lddx) && packs(a.dgate, a.lddg);
}

// Before the kernels above, which may write over x and gate.
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
NormArgs norm_args(const C& g) {
  NormArgs a{};
  a.x = g.x.p, a.gate = g.gate.p, a.w = g.w.p, a.ldx = g.x.ld, a.ldg = g.gate.ld;
  a.rows = g.x.rows, a.dim = g.w.cols, a.heads = g.x.cols / g.w.cols;
  a.half = g.x.type == DType::kBF16;
  return a;
}

}  // namespace

void gated_norm(Stream s, const GatedNorm& g) {
  if (g.x.rows == 0) return;
  NormArgs a = norm_args(g);
  a.y = g.y.p, a.ldy = g.y.ld, a.rstd = g.rstd, a.eps = g.eps;
  if (by_packs(a))
    gated_norm_pack_kernel<<<static_cast<unsigned>(ceil_div(a.rows * a.heads, kThreads / kPackLanes)), kThreads, 0,
                             s>>>(a);
  else
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
  if (by_packs(a))
    gated_norm_grad_pack_kernel<<<static_cast<unsigned>(ceil_div(a.rows * a.heads, kThreads / kPackLanes)), kThreads, 0,
                                  s>>>(a);
  else
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
