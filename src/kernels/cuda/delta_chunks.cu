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
  float a[kChunk * kAlong];
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

// (I + A)⁻¹ over A in shared memory, by blocks: those of 16 on the diagonal by forward substitution, a thread a column;
// then twice pairs of them are joined, [[P, 0], [C, Q]]⁻¹ = [[P⁻¹, 0], [−Q⁻¹·C·P⁻¹, Q⁻¹]].
__device__ __forceinline__ void invert_diagonal(float* a) {
  if (threadIdx.x >= kChunk) return;
  constexpr int kSide = 16;
  const int column = threadIdx.x % kSide;
  float* block = a + threadIdx.x / kSide * kSide * (kAlong + 1);
  float x[kSide];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum -= block[i * kAlong + j] * x[j];
    x[i] = sum;
  }
  __syncwarp();  // a block's columns are lanes of one warp
#pragma unroll
  for (int i = 0; i < kSide; ++i) block[i * kAlong + column] = x[i];
}
template <int kSide>
__device__ __forceinline__ void join_blocks(float* a, float* between) {
  constexpr int kPairs = kChunk / (2 * kSide), kOwn = kPairs * kSide * kSide / kThreads;
  const int place = threadIdx.x * kOwn, pair = place / (kSide * kSide), i = place / kSide % kSide, j = place % kSide;
  float* first = a + pair * 2 * kSide * (kAlong + 1);
  float *second = first + kSide * (kAlong + 1), *below = first + kSide * kAlong;
  between += pair * kSide * kSide;
  float sum[kOwn] = {};
#pragma unroll
  for (int k = 0; k < kSide; ++k)
#pragma unroll
    for (int o = 0; o < kOwn; ++o) sum[o] += below[i * kAlong + k] * first[k * kAlong + j + o];
#pragma unroll
  for (int o = 0; o < kOwn; ++o) between[i * kSide + j + o] = sum[o], sum[o] = 0;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSide; ++k)
#pragma unroll
    for (int o = 0; o < kOwn; ++o) sum[o] -= second[i * kAlong + k] * between[k * kSide + j + o];
#pragma unroll
  for (int o = 0; o < kOwn; ++o) below[i * kAlong + j + o] = sum[o];
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<PrepareShared*>(space);
  const Chunk c = chunk_of(a, blockIdx.x);
  if (c.count == 0) return;
  const int head = blockIdx.y;
  fetch_rows<kDim, kWide, kThreads>(s.q, a.qkv + a.q_at(c.first, head), a.ldqkv, c.count);
  fetch_rows<kDim, kWide, kThreads>(s.k, a.qkv + a.k_at(c.first, head), a.ldqkv, c.count);
  copies_wait_all();
  __syncthreads();
  make_coefficients(a, c, head, s);
  __syncthreads();
  if (threadIdx.x < c.count) a.coefficients[(c.first + threadIdx.x) * a.heads + head] = s.of[threadIdx.x];
  const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 32;
  float kk[1][4][4], qk[1][4][4];
  clear(kk), clear(qk);
  product_twice<kDim>(
      kk, qk, [&](int m, int k) { return two(s.k + (row + m) * kWide + k); },
      [&](int m, int k) { return two(s.q + (row + m) * kWide + k); },
      [&](int k, int n) { return two(s.k + (column + n) * kWide + k); });
  const int64_t ld = static_cast<int64_t>(a.heads) * kChunk, at = (c.first * a.heads + head) * kChunk;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const int i = row + g + 4 * e;
    const Coefficients mine = s.of[i];
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      const int j = column + 8 * f + 2 * t;
      float score[2];
#pragma unroll
      for (int o = 0; o < 2; ++o) {
        const Coefficients its = s.of[j + o];
        const float kept = j + o <= i ? its.k_scale * __expf(mine.log - its.log) : 0.0f;
        score[o] = rounded(qk[0][f][e + o] * mine.q_scale * kept);
        s.a[i * kAlong + j + o] = j + o < i ? kk[0][f][e + o] * mine.beta * mine.k_scale * kept : 0.0f;
      }
      if (i < c.count) *reinterpret_cast<float2*>(a.scores + at + i * ld + j) = make_float2(score[0], score[1]);
    }
  }
  __syncthreads();
  invert_diagonal(s.a);
  __syncthreads();
  auto* between = reinterpret_cast<float*>(s.q);  // no longer read
  join_blocks<16>(s.a, between);
  join_blocks<32>(s.a, between);
  for (int i = threadIdx.x; i < c.count * kChunk; i += kThreads)
    a.inverse[at + i / kChunk * ld + i % kChunk] = rounded(s.a[i / kChunk * kAlong + i % kChunk]);
}

// --- from chunk to chunk: states, results ---

struct WalkShared {
  bf16 k[kChunk * kWide], q[kChunk * kWide];
  float s[kDim * kAcross], r[kChunk * kAcross], t[kChunk * kAlong];  // S; Y, R, R for S; T, P: all rounded
  Scales of[kChunk];
};

// kKeep: R and states stay for the gradient; otherwise O is written.
template <bool kKeep>
__global__ void __launch_bounds__(kThreads, 2) walk_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<WalkShared*>(space);
  const int half = blockIdx.x * kHalf, head = blockIdx.y, warp = threadIdx.x / 32;
  const int row = warp / 2 * 16, column = warp % 2 * 32, state_row = warp / 2 * 32;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int64_t begin = a.cu[blockIdx.z], end = a.cu[blockIdx.z + 1];
  const int64_t per_token = static_cast<int64_t>(a.heads) * kChunk;
  const auto of_k = [&](int m, int k) { return two(s.k + (row + m) * kWide + k); };
  const auto of_q = [&](int m, int k) { return two(s.q + (row + m) * kWide + k); };
  const auto of_t = [&](int m, int k) { return two(s.t + (row + m) * kAlong + k); };
  const auto of_state = [&](int k, int n) { return two_down(s.s + k * kAcross + column + n, kAcross); };
  const auto of_r = [&](int k, int n) { return two_down(s.r + k * kAcross + column + n, kAcross); };
  const auto as_it_is = [](float x, int) { return x; };
  float* mine = s.r + row * kAcross + column;
  State state;
  clear(state);
  for (Chunk c{begin, begin, 0, 0, false}; c.first < end; ++c.index, c.first += kChunk) {
    c.count = static_cast<int>(end - c.first < kChunk ? end - c.first : kChunk);
    const int64_t at = (c.first * a.heads + head) * kChunk;
    __syncthreads();
    fetch_rows<kDim, kWide, kThreads>(s.k, a.qkv + a.k_at(c.first, head), a.ldqkv, c.count);
    if (!kKeep) fetch_rows<kDim, kWide, kThreads>(s.q, a.qkv + a.q_at(c.first, head), a.ldqkv, c.count);
    fetch_rows<kChunk, kAlong, kThreads>(s.t, a.inverse + at, per_token, c.count);
    load_scales(a, c, head, s.of);
    const float kept = expf(whole_log(a, c, head));
    uint32_t values[4][2];  // two neighbours each of V, where this lane's elements of a product lie
    const bf16* v = a.qkv + c.first * a.ldqkv + a.v_column(head) + half + column + 2 * t;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int m = row + g + 8 * e;
        values[j][e] = m < c.count ? *reinterpret_cast<const uint32_t*>(v + m * a.ldqkv + 8 * j) : 0u;
      }
    share_state(s.s + state_row * kAcross + column, state);
    if (kKeep && c.index > 0)
      store_state(a.states + state_at(a, begin, c.index, head) + state_row * kDim + half + column, state);
    copies_wait_all();
    __syncthreads();
    Part y, o, r;
    clear(y), clear(o), clear(r);
    if (kKeep)
      product<kDim>(y, of_k, of_state);
    else
      product_twice<kDim>(y, o, of_k, of_q, of_state);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Scales& f = s.of[row + g + 4 * (e & 2)];
        const float v_one = __uint_as_float(e % 2 == 0 ? values[j][e / 2] << 16 : values[j][e / 2] & 0xffff0000u);
        y[0][j][e] = f.beta * (v_one - f.k * y[0][j][e]);
      }
    share_rows(mine, y, as_it_is);
    __syncthreads();
    product<kChunk>(r, of_t, of_r);
    __syncthreads();
    if (!kKeep) {
      fetch_rows<kChunk, kAlong, kThreads>(s.t, a.scores + at, per_token, c.count);
      share_rows(mine, r, as_it_is);
      each(o, [&](int m, int, float& x) { x *= s.of[row + m].q; });
      copies_wait_all();
      __syncthreads();
      product<kChunk>(o, of_t, of_r);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int m = row + g + 4 * e, n = head * kDim + half + column + 8 * j + 2 * t;
        if (m >= c.count) continue;
        if (kKeep)
          *reinterpret_cast<float2*>(a.r + (c.first + m) * a.heads * kDim + n) =
              make_float2(r[0][j][e], r[0][j][e + 1]);
        else
          *reinterpret_cast<uint32_t*>(a.out + (c.first + m) * a.ldout + n) = pack_bf16(o[0][j][e], o[0][j][e + 1]);
      }
    if (!kKeep) __syncthreads();
    share_rows(mine, r, [&](float x, int m) { return x * s.of[row + m].end; });
    __syncthreads();
    scale(state, kept);
    product_of_columns<kChunk>(state, s.k + state_row, of_r);
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

bool delta_chunks_cover(const GatedDelta& g) {
  return sizeof(delta::WalkShared) <= device::card().shared && delta::covers(g) && !g.carried.on && g.out.ld % 2 == 0;
}

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
