#include "kernels/cuda/delta_chunks.h"

#include "kernels/cuda/delta_chunks.cuh"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::cuda {
namespace delta {
namespace {

constexpr int kThreads = 256;
constexpr int kHalf = 64;  // columns of values that a block of the walks takes

// --- for all chunks side by side: coefficients, T, P ---

struct PrepareShared {
  bf16 k[kChunk * kWide], q[kChunk * kWide];
  float a[kChunk * kByRow];
  Coefficients of[kChunk];
};

__device__ __forceinline__ float length_inverse(const bf16* row) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < kDim; i += 32) sum += to_float(row[i]) * to_float(row[i]);
#pragma unroll
  for (int m = 16; m > 0; m /= 2) sum += shuffle_xor(sum, m);
  return rsqrtf(sum + 1e-6f);
}

__device__ __forceinline__ void make_coefficients(const Args& a, const Chunk& c, int head, PrepareShared& s) {
  for (int i = threadIdx.x / 32; i < kChunk; i += kThreads / 32) {
    const float q = length_inverse(s.q + i * kWide) * rsqrtf(static_cast<float>(kDim)),
                k = length_inverse(s.k + i * kWide);
    if (threadIdx.x % 32 != 0) continue;
    Coefficients x{0, 0, 0, 0};
    if (i < c.count) {
      const bf16* row = a.ba + (c.first + i) * a.ldba + head;
      x = {q, k, sigmoid(to_float(row[0])), -expf(a.a_log[head]) * softplus(to_float(row[a.heads]) + a.dt_bias[head])};
    }
    s.of[i] = x;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  float low = s.of[2 * threadIdx.x].log, high = low + s.of[2 * threadIdx.x + 1].log, sum = high;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, sum, step);
    if (threadIdx.x >= step) sum += before;
  }
  const float carried = __shfl_up_sync(0xffffffffu, sum, 1);
  if (threadIdx.x > 0) low += carried, high += carried;
  s.of[2 * threadIdx.x].log = low, s.of[2 * threadIdx.x + 1].log = high;
}

// Column `column` of (I + A)⁻¹ by forward substitution.
__device__ __forceinline__ void invert_column(const float* a, int column, float* to, int64_t ld, int count) {
  float x[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sum[4] = {i == column ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; ++j) sum[j % 4] -= a[i * kByRow + j] * x[j];
    x[i] = sum[0] + sum[1] + sum[2] + sum[3];
    if (i < count) to[i * ld + column] = x[i];
  }
}

__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<PrepareShared*>(space);
  const Chunk c = chunk_of(a, blockIdx.x);
  if (c.count == 0) return;
  const int head = blockIdx.y;
  fetch_rows<kDim, kWide, kThreads>(s.q, a.qkv + a.q_at(c.first, head), a.ldqkv, c.count);
  fetch_rows<kDim, kWide, kThreads>(s.k, a.qkv + a.k_at(c.first, head), a.ldqkv, c.count);
  arrived();
  __syncthreads();
  make_coefficients(a, c, head, s);
  __syncthreads();
  if (threadIdx.x < c.count) a.coefficients[(c.first + threadIdx.x) * a.heads + head] = s.of[threadIdx.x];
  const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 32;
  float kk[1][4][4], qk[1][4][4];
  clear(kk), clear(qk);
  product_twice<kDim>(
      kk, qk, [&](int m, int k) { return tf32(s.k[(row + m) * kWide + k]); },
      [&](int m, int k) { return tf32(s.q[(row + m) * kWide + k]); },
      [&](int k, int n) { return tf32(s.k[(column + n) * kWide + k]); });
  const int64_t ld = static_cast<int64_t>(a.heads) * kChunk, at = (c.first * a.heads + head) * kChunk;
  each(kk, [&](int m, int n, float x) {
    const int i = row + m, j = column + n;
    s.a[i * kByRow + j] =
        j < i ? x * s.of[i].beta * s.of[i].k_scale * s.of[j].k_scale * expf(s.of[i].log - s.of[j].log) : 0.0f;
  });
  each(qk, [&](int m, int n, float x) {
    const int i = row + m, j = column + n;
    if (i < c.count)
      a.scores[at + i * ld + j] =
          j <= i ? x * s.of[i].q_scale * s.of[j].k_scale * expf(s.of[i].log - s.of[j].log) : 0.0f;
  });
  __syncthreads();
  if (threadIdx.x < kChunk) invert_column(s.a, threadIdx.x, a.inverse + at, ld, c.count);
}

// --- from chunk to chunk: states, results ---

struct WalkShared {
  bf16 k[kChunk * kWide], q[kChunk * kWide];
  float s[kDim * kByColumn], r[kChunk * kByColumn], t[kChunk * kByRow];
  Scales of[kChunk];
};

// kKeep: R and states stay for the gradient; otherwise O is written.
template <bool kKeep>
__global__ void __launch_bounds__(kThreads, 2) walk_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<WalkShared*>(space);
  const int half = blockIdx.x * kHalf, head = blockIdx.y, warp = threadIdx.x / 32;
  const int row = warp / 2 * 16, column = warp % 2 * 32, state_row = warp / 2 * 32;
  const int64_t begin = a.cu[blockIdx.z], end = a.cu[blockIdx.z + 1];
  const int64_t per_token = static_cast<int64_t>(a.heads) * kChunk;
  fetch_state<kHalf, kByColumn, kThreads>(s.s, nullptr);
  for (Chunk c{begin, begin, 0, 0, false}; c.first < end; ++c.index, c.first += kChunk) {
    c.count = static_cast<int>(end - c.first < kChunk ? end - c.first : kChunk);
    const int64_t at = (c.first * a.heads + head) * kChunk;
    __syncthreads();
    if (kKeep && c.index > 0)
      store_state<kHalf, kByColumn, kThreads>(a.states + state_at(a, begin, c.index, head) + half, s.s);
    fetch_rows<kDim, kWide, kThreads>(s.k, a.qkv + a.k_at(c.first, head), a.ldqkv, c.count);
    if (!kKeep) fetch_rows<kDim, kWide, kThreads>(s.q, a.qkv + a.q_at(c.first, head), a.ldqkv, c.count);
    fetch_rows<kChunk, kByRow, kThreads>(s.t, a.inverse + at, per_token, c.count);
    load_scales(a, c, head, s.of);
    const float kept = expf(whole_log(a, c, head));
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t values[4][2];  // two neighbours each of V, where this lane's elements of a product lie
    const bf16* v = a.qkv + c.first * a.ldqkv + a.v_column(head) + half + column + 2 * t;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int m = row + g + 8 * e;
        values[j][e] = m < c.count ? *reinterpret_cast<const uint32_t*>(v + m * a.ldqkv + 8 * j) : 0u;
      }
    arrived();
    __syncthreads();
    float ks[1][4][4], o[1][4][4];
    clear(ks), clear(o);
    const auto of_k = [&](int m, int k) { return tf32(s.k[(row + m) * kWide + k]); };
    const auto of_state = [&](int k, int n) { return tf32(s.s[k * kByColumn + column + n]); };
    if (kKeep)
      product<kDim>(ks, of_k, of_state);
    else
      product_twice<kDim>(ks, o, of_k, [&](int m, int k) { return tf32(s.q[(row + m) * kWide + k]); }, of_state);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = row + g + 4 * (e & 2);
        const float v_one = __uint_as_float(e % 2 == 0 ? values[j][e / 2] << 16 : values[j][e / 2] & 0xffff0000u);
        s.r[m * kByColumn + column + 8 * j + 2 * t + e % 2] = s.of[m].beta * (v_one - s.of[m].k * ks[0][j][e]);
      }
    __syncthreads();
    float r[1][4][4];
    clear(r);
    const auto of_r = [&](int k, int n) { return tf32(s.r[k * kByColumn + column + n]); };
    product<kChunk>(r, [&](int m, int k) { return tf32(s.t[(row + m) * kByRow + k]); }, of_r);
    __syncthreads();
    each(r, [&](int m, int n, float x) {
      s.r[(row + m) * kByColumn + column + n] = x;
      if (kKeep && row + m < c.count) a.r[((c.first + row + m) * a.heads + head) * kDim + half + column + n] = x;
    });
    if (!kKeep) fetch_rows<kChunk, kByRow, kThreads>(s.t, a.scores + at, per_token, c.count);
    __syncthreads();
    float next[2][4][4];
    clear(next);
    product<kChunk>(
        next, [&](int m, int k) { return tf32(s.k[k * kWide + state_row + m]); },
        [&](int k, int n) { return tf32(s.r[k * kByColumn + column + n] * s.of[k].end); });
    each(next, [&](int m, int n, float x) {
      float& state = s.s[(state_row + m) * kByColumn + column + n];
      state = kept * state + x;
    });
    if (kKeep) continue;
    arrived();
    __syncthreads();
    each(o, [&](int m, int, float& x) { x *= s.of[row + m].q; });
    product<kChunk>(o, [&](int m, int k) { return tf32(s.t[(row + m) * kByRow + k]); }, of_r);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int m = row + g + 4 * e;
        if (m < c.count)
          *reinterpret_cast<uint32_t*>(a.out + (c.first + m) * a.ldout + head * kDim + half + column + 8 * j + 2 * t) =
              pack_bf16(o[0][j][e], o[0][j][e + 1]);
      }
  }
}

}  // namespace

void prepare(cudaStream_t s, const Args& a, int64_t tokens) {
  allow_shared(prepare_kernel, sizeof(PrepareShared));
  prepare_kernel<<<all_chunks(a, tokens), kThreads, sizeof(PrepareShared), s>>>(a);
  check_launch("gated_delta chunks");
}

void walk(cudaStream_t s, const Args& a, bool keep) {
  const dim3 grid(kDim / kHalf, static_cast<unsigned>(a.heads), static_cast<unsigned>(a.documents));
  const auto kernel = keep ? walk_kernel<true> : walk_kernel<false>;
  allow_shared(kernel, sizeof(WalkShared));
  kernel<<<grid, kThreads, sizeof(WalkShared), s>>>(a);
  check_launch("gated_delta walk");
}

}  // namespace delta

bool delta_chunks_cover(const GatedDelta& g) { return delta::covers(g) && !g.carried.on && g.out.ld % 2 == 0; }

size_t delta_chunks_scratch(const GatedDelta& g) {
  return static_cast<size_t>(delta::prepared_floats(g.qkv.rows, g.of.value_heads)) * sizeof(float);
}

void delta_chunks(cudaStream_t s, const GatedDelta& g, void* scratch) {
  if (g.qkv.rows == 0 || g.documents == 0) return;
  delta::Args a = delta::args_of(g);
  a.out = static_cast<bf16*>(g.out.p), a.ldout = g.out.ld;
  delta::take_prepared(a, static_cast<float*>(scratch), g.qkv.rows);
  delta::prepare(s, a, g.qkv.rows);
  delta::walk(s, a, false);
}

}  // namespace mxt::kernels::cuda
