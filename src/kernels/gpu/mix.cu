// Residual streams mixed by learned scalars, and additions behind a gate (kernels::Mix, kernels::Gate). A block takes a
// row; what is summed over rows is left a row each in scratch and added in one order afterwards.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kSumThreads = 1024;
constexpr int64_t kGroups = 256;
constexpr int64_t kPartRows = 128, kPartFloats = 12 << 10;  // whose gates' gradients a block sums, and its memory

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
    mix_grad_kernel(const void* dy, int64_t lddy, const void* x, int64_t ldx, const void* z, int64_t ldz,
                    const void* sum, int64_t lds, void* dx, int64_t lddx, void* dz, int64_t lddz, int64_t cols,
                    Weights wa, Weights wb, float sign, float2* sums) {
  __shared__ float space[kThreads / kWarp];
  const int64_t row = row_of_block();
  const float a = one(wa, 1), b = sign * one(wb, 1);
  float with_x = 0, with_z = 0;
  for (int64_t i = threadIdx.x * V; i < cols; i += kThreads * V) {
    float d[V], f[V], g[V], before[V] = {};
    load<T, V>(dy, row * lddy + i).unpack(d);
    load<T, V>(x, row * ldx + i).unpack(f);
    load<T, V>(z, row * ldz + i).unpack(g);
    if (sum != nullptr) load<T, V>(sum, row * lds + i).unpack(before);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      with_x += d[k] * f[k], with_z += d[k] * g[k];
      f[k] = a * d[k], g[k] = b * d[k] + before[k];
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
#pragma unroll 8
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
  const bool in_place = x == y;
  const int64_t begin = in_place ? a.col : 0, past = in_place ? end : cols;
  const auto changes = [&](int64_t i) { return i >= a.col && i < end; };
  Raw<T, V> raw, more;  // a thread's first packs are on their way while the gates are made
  const auto ask = [&](int64_t i) {
    raw = load<T, V>(x, row * ldx + i);
    if (changes(i)) more = load<T, V>(a.u, row * a.ldu + i - a.col);
  };
  if (const int64_t i = begin + threadIdx.x * V; i < past) ask(i);
  gates_of<T>(a, row, gates);
  const float by = a.by * one(a.lambda, 1);
  for (int64_t i = begin + threadIdx.x * V; i < past; i += kThreads * V) {
    if (i >= begin + kThreads * V) ask(i);
    if (changes(i)) {
      float v[V], u[V];
      raw.unpack(v);
      more.unpack(u);
      const float gate = by * gates[(i - a.col) / a.width];
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] += gate * u[k];
      raw = Raw<T, V>::pack(v);
    }
    store<T, V>(y, row * ldy + i, raw);
  }
}

// dz[row, g]: the gradient before the sigmoid; dlambda[row]. A team of `lanes` threads, a power of two within a warp,
// takes a group: its gate, then its columns.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, 6)
    gate_grad_kernel(GateArgs a, const void* dy, int64_t lddy, void* ds, int64_t ldds, int64_t source, void* du,
                     int64_t lddu, float* dz, float* dlambda, int lanes) {
  __shared__ float slopes[kGroups], parts[kGroups];
  const int64_t row = row_of_block();
  const bool left = a.positions != nullptr && a.positions[row] == 0;
  const float lambda = one(a.lambda, 1), by = a.by * lambda;
  const int lane = static_cast<int>(threadIdx.x) % lanes, teams = kThreads / lanes;
  auto team_sum = [lanes](float v) {
    for (int m = lanes / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
    return v;
  };
  for (int64_t first = 0; first < a.groups; first += teams) {  // all threads of a warp go round together
    const int64_t g = first + threadIdx.x / lanes, end = (g + 1) * a.width;
    const bool mine = g < a.groups;
    float z = 0, p = 0;
    Raw<T, V> dy_pack, u_pack;  // the first are on their way while the gate is made
    const auto ask = [&](int64_t j) {
      dy_pack = load<T, V>(dy, row * lddy + a.col + j);
      u_pack = load<T, V>(a.u, row * a.ldu + j);
    };
    const int64_t begin = g * a.width + lane * V;
    if (mine && begin < end) ask(begin);
    for (int64_t k = lane; mine && k < a.taps; k += lanes)
      z += to_float(static_cast<const T*>(a.w)[g * a.ldw + k]) * to_float(static_cast<const T*>(a.s)[row * a.lds + k]);
    z = team_sum(z);
    const float gate = left ? 0.0f : sigmoid(z);
    for (int64_t j = begin; mine && j < end; j += lanes * V) {
      if (j != begin) ask(j);
      float d[V], u[V];
      dy_pack.unpack(d);
      u_pack.unpack(u);
#pragma unroll
      for (int k = 0; k < V; ++k) p += d[k] * u[k], d[k] *= by * gate;
      store<T, V>(du, row * lddu + j, Raw<T, V>::pack(d));
    }
    p = team_sum(p);
    if (!mine || lane != 0) continue;
    slopes[g] = by * gate * (1 - gate) * p;
    parts[g] = a.by * gate * p;
    dz[row * a.groups + g] = slopes[g];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int64_t g = 0; g < a.groups; ++g) sum += parts[g];
    dlambda[row] = sum;
  }
  // The channels that the gates read, a thread each, beside the zeros of the rest.
  const int64_t packs = (a.taps + V - 1) / V * V, read = packs < source ? packs : source;
  for (int64_t i = kThreads - 1 - static_cast<int64_t>(threadIdx.x); i < read; i += kThreads) {
    float sum = 0;
    for (int64_t g = 0; i < a.taps && g < a.groups; ++g)
      sum += slopes[g] * to_float(static_cast<const T*>(a.w)[g * a.ldw + i]);
    static_cast<T*>(ds)[row * ldds + i] = from_float<T>(sum);
  }
  const float none[V] = {};
  for (int64_t i = read + threadIdx.x * V; i < source; i += kThreads * V)
    store<T, V>(ds, row * ldds + i, Raw<T, V>::pack(none));
}

// parts[block][g·taps + k] = Σ dz[t, g]·s[t, k] over a block's rows, and one more for Σ λ's; kept in shared memory once
// for all of them.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gate_parts(GateArgs a, const float* dz, const float* each, int64_t rows, int64_t of_block, float* parts) {
  extern __shared__ float held[];  // [of_block][groups], [of_block][taps], [of_block]
  const int64_t first = static_cast<int64_t>(blockIdx.x) * of_block,
                count = rows - first < of_block ? rows - first : of_block;
  float *sources = held + of_block * a.groups, *lambdas = sources + of_block * a.taps;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) lambdas[i] = each[first + i];
  for (int64_t i = threadIdx.x; i < count * a.groups; i += kThreads) held[i] = dz[first * a.groups + i];
  for (int64_t i = threadIdx.x; i < count * a.taps; i += kThreads)
    sources[i] = to_float(static_cast<const T*>(a.s)[(first + i / a.taps) * a.lds + i % a.taps]);
  __syncthreads();
  const int64_t pairs = a.groups * a.taps;
  float* out = parts + blockIdx.x * (pairs + 1);
  for (int64_t at = threadIdx.x; at <= pairs; at += kThreads) {
    const int64_t g = at / a.taps, k = at % a.taps;
    float sum = 0;
    for (int64_t t = 0; t < count; ++t)
      sum += at == pairs ? lambdas[t] : held[t * a.groups + g] * sources[t * a.taps + k];
    out[at] = sum;
  }
}

// dw[g, k] (+)= the parts' sum, a warp each; the last one adds the λs.
__global__ void __launch_bounds__(kThreads)
    gate_sums(const float* parts, int64_t blocks, int64_t pairs, float* dw, float* dlambda, bool accumulate) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  float* out = at > pairs ? nullptr : at == pairs ? dlambda : dw == nullptr ? nullptr : dw + at;
  if (out == nullptr) return;
  const int lane = threadIdx.x % kWarp;
  float sum = 0;
  for (int64_t b = lane; b < blocks; b += kWarp) sum += parts[b * (pairs + 1) + at];
  sum = warp_sum(sum);
  if (lane == 0) *out = (accumulate ? *out : 0.0f) + sum;
}

int64_t part_rows(const GateGrad& c) {
  const int64_t fit = kPartFloats / (c.w.rows + c.w.cols + 1);
  return fit < 1 ? 1 : fit < kPartRows ? fit : kPartRows;
}
int64_t part_count(const GateGrad& c) { return ceil_div(c.dy.rows, part_rows(c)); }

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

// Threads for so many packs of columns.
int team_of(int64_t packs) {
  int n = 1;
  while (n < kWarp && n < packs) n *= 2;
  return n;
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
    const bool even =
        wide(m.dy) && wide(m.x) && wide(m.z) && wide(m.sum) && wide(ConstMat(m.dx)) && wide(ConstMat(m.dz));
    MXT_GPU_DISPATCH(m.dy.type, even,
                     mix_grad_kernel<T, V><<<static_cast<unsigned>(m.dy.rows), kThreads, 0, s>>>(
                         m.dy.p, m.dy.ld, m.x.p, m.x.ld, m.z.p, m.z.ld, m.sum.p, m.sum.ld, m.dx.p, m.dx.ld, m.dz.p,
                         m.dz.ld, m.dy.cols, a, b, m.sign, sums));
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

size_t gate_grad_scratch(const GateGrad& c) {
  const int64_t rows = c.dy.rows * (c.w.rows + 1), parts = part_count(c) * (c.w.rows * c.w.cols + 1);
  return static_cast<size_t>(rows + parts) * sizeof(float);
}

void gate_grad(Stream s, const GateGrad& c, void* scratch) {
  const GateArgs a = args_of(c);
  auto *dz = static_cast<float*>(scratch), *each = dz + c.dy.rows * c.w.rows, *parts = each + c.dy.rows;
  const int64_t blocks = part_count(c), of_block = part_rows(c), pairs = a.groups * a.taps;
  if (blocks > 0) {
    const bool even =
        wide(c.dy) && wide(c.u) && wide(ConstMat(c.ds)) && wide(ConstMat(c.du)) && whole_packs(a, c.dy.type);
    MXT_GPU_DISPATCH(
        c.dy.type, even,
        gate_grad_kernel<T, V><<<static_cast<unsigned>(c.dy.rows), kThreads, 0, s>>>(
            a, c.dy.p, c.dy.ld, c.ds.p, c.ds.ld, c.ds.cols, c.du.p, c.du.ld, dz, each, team_of(ceil_div(a.width, V))));
    check_launch("gate_grad");
    const size_t shared = static_cast<size_t>(of_block * (a.groups + a.taps + 1)) * sizeof(float);
    require(shared <= kPartFloats * sizeof(float), "a gate reads at most 12,000 channels");
    const auto kernel = c.dy.type == DType::kBF16 ? gate_parts<bf16> : gate_parts<float>;
    kernel<<<static_cast<unsigned>(blocks), kThreads, shared, s>>>(a, dz, each, c.dy.rows, of_block, parts);
    check_launch("gate_parts");
  }
  gate_sums<<<static_cast<unsigned>(ceil_div(pairs + 1, int64_t{kThreads / kWarp})), kThreads, 0, s>>>(
      parts, blocks, pairs, c.dw, c.dlambda, c.accumulate);
  check_launch("gate_sums");
}

}  // namespace mxt::kernels::MXT_GPU_NS
