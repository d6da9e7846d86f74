// Residual streams mixed by learned scalars, and additions behind a gate (kernels::Mix, kernels::Gate). A block takes a
// row; what is summed over rows is left a row each in scratch and added in one order afterwards.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kSumThreads = 512;
constexpr int64_t kGroups = 256;

__device__ __forceinline__ float one(const Weights& w, float missing) {
  float f[1];
  w.get<1>(0, f, missing);
  return f[0];
}
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) mix_kernel(const void* x, int64_t ldx, const void* z, int64_t ldz, void* y,
                                                       int64_t ldy, int64_t cols, Weights wa, Weights wb, float sign) {
  const int64_t row = row_of_block();
  const float a = one(wa, 1), b = sign * one(wb, 1);
  for (int64_t i = threadIdx.x * V; i < cols; i += kThreads * V) {
    float f[V], g[V];
    load<T, V>(x, row * ldx + i).unpack(f);
    load<T, V>(z, row * ldz + i).unpack(g);
#pragma unroll
    for (int k = 0; k < V; ++k) f[k] = a * f[k] + b * g[k];
    store<T, V>(y, row * ldy + i, Raw<T, V>::pack(f));
  }
}

// sums[row]: Σ dy·x and Σ dy·z.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    mix_grad_kernel(const void* dy, int64_t lddy, const void* x, int64_t ldx, const void* z, int64_t ldz, void* dx,
                    int64_t lddx, void* dz, int64_t lddz, int64_t cols, Weights wa, Weights wb, float sign,
                    float2* sums) {
  __shared__ float space[kThreads / kWarp];
  const int64_t row = row_of_block();
  const float a = one(wa, 1), b = sign * one(wb, 1);
  float with_x = 0, with_z = 0;
  for (int64_t i = threadIdx.x * V; i < cols; i += kThreads * V) {
    float d[V], f[V], g[V];
    load<T, V>(dy, row * lddy + i).unpack(d);
    load<T, V>(x, row * ldx + i).unpack(f);
    load<T, V>(z, row * ldz + i).unpack(g);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      with_x += d[k] * f[k], with_z += d[k] * g[k];
      f[k] = a * d[k], g[k] = b * d[k];
    }
    if (dx != nullptr) store<T, V>(dx, row * lddx + i, Raw<T, V>::pack(f));
    store<T, V>(dz, row * lddz + i, Raw<T, V>::pack(g));
  }
  with_x = block_sum(with_x, space);
  with_z = block_sum(with_z, space);
  if (threadIdx.x == 0) sums[row] = make_float2(with_x, sign * with_z);
}

__global__ void __launch_bounds__(kSumThreads)
    mix_sums(const float2* sums, int64_t rows, float* da, float* db, bool accumulate) {
  __shared__ float space[kSumThreads / kWarp];
  float a = 0, b = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kSumThreads) a += sums[r].x, b += sums[r].y;
  a = block_sum(a, space);
  b = block_sum(b, space);
  if (threadIdx.x != 0) return;
  if (da != nullptr) *da = (accumulate ? *da : 0.0f) + a;
  if (db != nullptr) *db = (accumulate ? *db : 0.0f) + b;
}

struct GateArgs {
  const void *s, *w, *u;
  int64_t lds, ldw, ldu, groups, taps, width, col;
  Weights lambda;
  float by;
  const int32_t* positions;
};

// gates[g] = σ(w_g · s_row), or 0 where the row is left as it is; by warps, then a barrier.
template <typename T>
__device__ __forceinline__ void gates_of(const GateArgs& a, int64_t row, float* gates) {
  const bool left = a.positions != nullptr && a.positions[row] == 0;
  const int lane = threadIdx.x % kWarp;
  for (int64_t g = threadIdx.x / kWarp; g < a.groups; g += kThreads / kWarp) {
    float z = 0;
    for (int64_t k = lane; k < a.taps; k += kWarp)
      z += to_float(static_cast<const T*>(a.w)[g * a.ldw + k]) * to_float(static_cast<const T*>(a.s)[row * a.lds + k]);
    z = warp_sum(z);
    if (lane == 0) gates[g] = left ? 0.0f : sigmoid(z);
  }
  __syncthreads();
}

// Packs of V columns lie within one group. Where y is x, only the columns that change are touched.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(GateArgs a, const void* x, int64_t ldx, void* y, int64_t ldy, int64_t cols) {
  __shared__ float gates[kGroups];
  const int64_t row = row_of_block(), end = a.col + a.groups * a.width;
  gates_of<T>(a, row, gates);
  const float by = a.by * one(a.lambda, 1);
  const bool in_place = x == y;
  for (int64_t i = (in_place ? a.col : 0) + threadIdx.x * V; i < (in_place ? end : cols); i += kThreads * V) {
    const Raw<T, V> raw = load<T, V>(x, row * ldx + i);
    if (i < a.col || i >= end) {
      store<T, V>(y, row * ldy + i, raw);
      continue;
    }
    float v[V], u[V];
    raw.unpack(v);
    load<T, V>(a.u, row * a.ldu + i - a.col).unpack(u);
    const float gate = by * gates[(i - a.col) / a.width];
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] += gate * u[k];
    store<T, V>(y, row * ldy + i, Raw<T, V>::pack(v));
  }
}

// dz[row, g]: the gradient before the sigmoid; dlambda[row].
template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    gate_grad_kernel(GateArgs a, const void* dy, int64_t lddy, void* ds, int64_t ldds, int64_t source, void* du,
                     int64_t lddu, float* dz, float* dlambda) {
  __shared__ float gates[kGroups], slopes[kGroups], parts[kGroups];
  const int64_t row = row_of_block();
  gates_of<T>(a, row, gates);
  const float lambda = one(a.lambda, 1), by = a.by * lambda;
  const int lane = threadIdx.x % kWarp;
  for (int64_t g = threadIdx.x / kWarp; g < a.groups; g += kThreads / kWarp) {
    float p = 0;
    for (int64_t j = g * a.width + lane * V; j < (g + 1) * a.width; j += kWarp * V) {
      float d[V], u[V];
      load<T, V>(dy, row * lddy + a.col + j).unpack(d);
      load<T, V>(a.u, row * a.ldu + j).unpack(u);
#pragma unroll
      for (int k = 0; k < V; ++k) p += d[k] * u[k], d[k] *= by * gates[g];
      store<T, V>(du, row * lddu + j, Raw<T, V>::pack(d));
    }
    p = warp_sum(p);
    if (lane == 0) {
      slopes[g] = by * gates[g] * (1 - gates[g]) * p;
      parts[g] = a.by * gates[g] * p;
      dz[row * a.groups + g] = slopes[g];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int64_t g = 0; g < a.groups; ++g) sum += parts[g];
    dlambda[row] = sum;
  }
  for (int64_t i = threadIdx.x * V; i < source; i += kThreads * V) {
    float sum[V] = {};
    if (i < a.taps)
      for (int k = 0; k < V && i + k < a.taps; ++k)
        for (int64_t g = 0; g < a.groups; ++g)
          sum[k] += slopes[g] * to_float(static_cast<const T*>(a.w)[g * a.ldw + i + k]);
    store<T, V>(ds, row * ldds + i, Raw<T, V>::pack(sum));
  }
}

// dw[g, k] (+)= Σ_t dz[t, g]·s[t, k], a block each; the last block adds the λs.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) gate_sums(GateArgs a, const float* dz, const float* each, int64_t rows,
                                                         float* dw, float* dlambda, bool accumulate) {
  __shared__ float space[kSumThreads / kWarp];
  const int64_t at = blockIdx.x, g = at / a.taps, k = at % a.taps;
  const bool lambda = at == a.groups * a.taps;
  float* out = lambda ? dlambda : dw == nullptr ? nullptr : dw + at;
  if (out == nullptr) return;
  float sum = 0;
  for (int64_t t = threadIdx.x; t < rows; t += kSumThreads)
    sum += lambda ? each[t] : dz[t * a.groups + g] * to_float(static_cast<const T*>(a.s)[t * a.lds + k]);
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) *out = (accumulate ? *out : 0.0f) + sum;
}

template <typename C>
GateArgs args_of(const C& c) {
  require(c.w.rows <= kGroups, "a gated addition has at most 256 groups");
  require(c.w.type == c.u.type && c.s.type == c.u.type, "a gate's weights and inputs have one type");
  return {c.s.p,
          c.w.p,
          c.u.p,
          c.s.ld,
          c.w.ld,
          c.u.ld,
          c.w.rows,
          c.w.cols,
          c.u.cols / c.w.rows,
          c.col,
          {c.lambda, c.wtype == DType::kBF16},
          c.by,
          c.positions};
}

bool whole_packs(const GateArgs& a, DType type) {
  const int64_t v = elements_of_16_bytes(type);
  return a.col % v == 0 && a.width % v == 0;
}

}  // namespace

void mix(Stream s, const Mix& m) {
  if (m.y.rows == 0 || m.y.cols == 0) return;
  const Weights a{m.a, m.wtype == DType::kBF16}, b{m.b, m.wtype == DType::kBF16};
  const bool even = wide(m.x) && wide(m.z) && wide(ConstMat(m.y));
  MXT_GPU_DISPATCH(m.y.type, even,
                   mix_kernel<T, V><<<static_cast<unsigned>(m.y.rows), kThreads, 0, s>>>(
                       m.x.p, m.x.ld, m.z.p, m.z.ld, m.y.p, m.y.ld, m.y.cols, a, b, m.sign));
  check_launch("mix");
}

size_t mix_grad_scratch(const MixGrad& m) { return static_cast<size_t>(m.dy.rows) * sizeof(float2); }

void mix_grad(Stream s, const MixGrad& m, void* scratch) {
  const Weights a{m.a, m.wtype == DType::kBF16}, b{m.b, m.wtype == DType::kBF16};
  auto* sums = static_cast<float2*>(scratch);
  if (m.dy.rows > 0) {
    const bool even = wide(m.dy) && wide(m.x) && wide(m.z) && wide(ConstMat(m.dx)) && wide(ConstMat(m.dz));
    MXT_GPU_DISPATCH(m.dy.type, even,
                     mix_grad_kernel<T, V><<<static_cast<unsigned>(m.dy.rows), kThreads, 0, s>>>(
                         m.dy.p, m.dy.ld, m.x.p, m.x.ld, m.z.p, m.z.ld, m.dx.p, m.dx.ld, m.dz.p, m.dz.ld, m.dy.cols, a,
                         b, m.sign, sums));
    check_launch("mix_grad");
  }
  mix_sums<<<1, kSumThreads, 0, s>>>(sums, m.dy.rows, m.da, m.db, m.accumulate);
  check_launch("mix_sums");
}

void gate(Stream s, const Gate& c) {
  if (c.y.rows == 0) return;
  const GateArgs a = args_of(c);
  const bool even = wide(c.x) && wide(c.u) && wide(ConstMat(c.y)) && whole_packs(a, c.y.type);
  MXT_GPU_DISPATCH(c.y.type, even,
                   gate_kernel<T, V>
                   <<<static_cast<unsigned>(c.y.rows), kThreads, 0, s>>>(a, c.x.p, c.x.ld, c.y.p, c.y.ld, c.y.cols));
  check_launch("gate");
}

size_t gate_grad_scratch(const GateGrad& c) { return static_cast<size_t>(c.dy.rows * (c.w.rows + 1)) * sizeof(float); }

void gate_grad(Stream s, const GateGrad& c, void* scratch) {
  const GateArgs a = args_of(c);
  auto *dz = static_cast<float*>(scratch), *each = dz + c.dy.rows * c.w.rows;
  const auto grid = static_cast<unsigned>(c.dy.rows), sums = static_cast<unsigned>(a.groups * a.taps + 1);
  const bool half = c.dy.type == DType::kBF16;
  if (c.dy.rows > 0) {
    const bool even =
        wide(c.dy) && wide(c.u) && wide(ConstMat(c.ds)) && wide(ConstMat(c.du)) && whole_packs(a, c.dy.type);
    MXT_GPU_DISPATCH(c.dy.type, even,
                     gate_grad_kernel<T, V><<<grid, kThreads, 0, s>>>(a, c.dy.p, c.dy.ld, c.ds.p, c.ds.ld, c.ds.cols,
                                                                      c.du.p, c.du.ld, dz, each));
    check_launch("gate_grad");
  }
  if (half)
    gate_sums<bf16><<<sums, kSumThreads, 0, s>>>(a, dz, each, c.dy.rows, c.dw, c.dlambda, c.accumulate);
  else
    gate_sums<float><<<sums, kSumThreads, 0, s>>>(a, dz, each, c.dy.rows, c.dw, c.dlambda, c.accumulate);
  check_launch("gate_sums");
}

}  // namespace mxt::kernels::MXT_GPU_NS
