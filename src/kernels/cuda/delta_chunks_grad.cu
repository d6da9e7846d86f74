// The gradient of the rule of delta_chunks.h. With dS for a chunk's end and dO given, and K̃ = exp(G_64 − G)·K̂:
//   dR = Pᵀ·dO + K̃·dS     dX = Tᵀ·dR     dV = β·dX     dS₋ = γ_64·dS + (γ·Q̂)ᵀ·dO − (β·γ·K̂)ᵀ·dX
// from chunk to chunk, and then for all of them side by side, with M = dX·Rᵀ and dP = dO·Rᵀ,
//   dQ̂ = γ·dO·Sᵀ + (dP ∘ exp(G_i − G_j))·K̂
//   dK̂ = −β·γ·dX·Sᵀ + N·K̂ + exp(G_64 − G)·R·dSᵀ + (dP ∘ exp(G_i − G_j))ᵀ·Q̂ + Nᵀ·K̂,   N = −β_i·M ∘ exp(G_i − G_j)
//   dβ_i = M_ii/β_i
//   dG_i = q̂_i·dq̂_i + k̂_i·(the first two terms of dk̂_i − the others); the last token's also Σ_j k̂_j·(the third term
//   of dk̂_j) + γ_64·⟨dS, S⟩. log α of a token is in every G from it on.
#include "kernels/cuda/delta_chunks.cuh"
#include "kernels/cuda/delta_chunks.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::cuda {
namespace delta {
namespace {

constexpr int kThreads = 256, kHalf = 64;

// --- from the last chunk to the first ---

struct BackShared {
  bf16 keys[kChunk * kWide], dout[kChunk * kNarrow];  // K, then Q
  // dS; dR, dX for dS, dO for dS; P, then T: all rounded
  float ds[kDim * kAcross], r[kChunk * kAcross], t[kChunk * kAcross];
  Scales of[kChunk];
};

__global__ void __launch_bounds__(kThreads, 2) back_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<BackShared*>(space);
  constexpr int kPacks = kDim / 8, kOwn = kChunk * kPacks / kThreads;
  const int half = blockIdx.x * kHalf, head = blockIdx.y, warp = threadIdx.x / 32;
  const int row = warp / 2 * 16, column = warp % 2 * 32, state_row = warp / 2 * 32;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int64_t begin = a.cu[blockIdx.z], n = a.cu[blockIdx.z + 1] - begin;
  const int64_t per_token = static_cast<int64_t>(a.heads) * kChunk;
  const auto of_k = [&](int m, int k) { return two(s.keys + (row + m) * kWide + k); };
  const auto turned = [&](int m, int k) { return two_down(s.t + k * kAcross + row + m, kAcross); };
  const auto of_ds = [&](int k, int j) { return two_down(s.ds + k * kAcross + column + j, kAcross); };
  const auto of_dout = [&](int k, int j) { return two_down(s.dout + k * kNarrow + column + j, kNarrow); };
  const auto of_r = [&](int k, int j) { return two_down(s.r + k * kAcross + column + j, kAcross); };
  float* mine = s.r + row * kAcross + column;
  State ds;
  clear(ds);
  for (int64_t index = (n + kChunk - 1) / kChunk; index-- > 0;) {
    const int64_t first = begin + index * kChunk, left = begin + n - first;
    const Chunk c{begin, first, index, static_cast<int>(left < kChunk ? left : kChunk), left <= kChunk};
    const int64_t at = (c.first * a.heads + head) * kChunk;
    __syncthreads();
    fetch_rows<kDim, kWide, kThreads>(s.keys, a.qkv + a.k_at(first, head), a.ldqkv, c.count);
    fetch_rows<kHalf, kNarrow, kThreads>(s.dout, a.dout + first * a.lddout + head * kDim + half, a.lddout, c.count);
    fetch_rows<kChunk, kAcross, kThreads>(s.t, a.scores + at, per_token, c.count);
    load_scales(a, c, head, s.of);
    const float kept = expf(whole_log(a, c, head));
    share_state(s.ds + state_row * kAcross + column, ds);
    if (!c.last) store_state(a.dstates + state_at(a, begin, index + 1, head) + state_row * kDim + half + column, ds);
    copies_wait_all();
    __syncthreads();
    Part r, x;
    clear(r), clear(x);
    product<kDim>(r, of_k, of_ds);
    each(r, [&](int m, int, float& v) { v *= s.of[row + m].end; });
    product<kChunk>(r, turned, of_dout);
    __syncthreads();
    fetch_rows<kChunk, kAcross, kThreads>(s.t, a.inverse + at, per_token, c.count);
    share_rows(mine, r, [](float v, int) { return v; });
    uint4 queries[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int place = threadIdx.x + i * kThreads;
      queries[i] = make_uint4(0, 0, 0, 0);
      if (place / kPacks < c.count)
        queries[i] = *reinterpret_cast<const uint4*>(a.qkv + a.q_at(first + place / kPacks, head) + place % kPacks * 8);
    }
    copies_wait_all();
    __syncthreads();
    product<kChunk>(x, turned, of_r);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int m = row + g + 4 * e, at_column = half + column + 8 * j + 2 * t;
        if (m >= c.count) continue;
        const float beta = s.of[m].beta;
        *reinterpret_cast<float2*>(a.dx + ((first + m) * a.heads + head) * kDim + at_column) =
            make_float2(x[0][j][e], x[0][j][e + 1]);
        *reinterpret_cast<uint32_t*>(a.dqkv + (first + m) * a.lddqkv + a.v_column(head) + at_column) =
            pack_bf16(beta * x[0][j][e], beta * x[0][j][e + 1]);
      }
    __syncthreads();
    share_rows(mine, x, [&](float v, int m) { return v * (-s.of[row + m].k * s.of[row + m].beta); });
    __syncthreads();
    scale(ds, kept);
    product_of_columns<kChunk>(ds, s.keys + state_row, of_r);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int place = threadIdx.x + i * kThreads;
      *reinterpret_cast<uint4*>(s.keys + place / kPacks * kWide + place % kPacks * 8) = queries[i];
    }
    for (int i = threadIdx.x; i < kChunk * kHalf; i += kThreads) {
      const int m = i / kHalf, j = i % kHalf;
      s.r[m * kAcross + j] = rounded(to_float(s.dout[m * kNarrow + j]) * s.of[m].q);
    }
    __syncthreads();
    product_of_columns<kChunk>(ds, s.keys + state_row, of_r);
  }
}

// --- for all chunks side by side: what q, k, α and β get ---

constexpr int kMany = 512, kWarps = kMany / 32, kBeside = 4;  // warps beside each other over 128 columns

struct States {
  float s[kDim * kAlong], ds[kDim * kAlong], dx[kChunk * kAlong], r[kChunk * kAlong];
  bf16 dout[kChunk * kNarrow];
};
constexpr int kHats = kDim + 4;
struct Rows {
  float k[kChunk * kHats], q[kChunk * kHats];     // K̂ and Q̂
  float dp[kChunk * kAlong], n[kChunk * kAlong];  // all rounded
};
struct TokensShared {
  union {
    States states;
    Rows rows;
  };
  Coefficients of[kChunk];
  float end[kBeside][kChunk], sums[kBeside][kChunk], diagonal[kChunk], dots[kWarps];
};

// Σ over a lane's columns of each of its two rows, added over the four lanes of a row, to to[warp's columns][row].
template <typename F>
__device__ __forceinline__ void row_sums(float (*to)[kChunk], int row, F term) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) sum += term(row + g + 8 * e, 8 * j + 2 * t + i, j, 2 * e + i);
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    if (t == 0) to[threadIdx.x / 32 % kBeside][row + g + 8 * e] = sum;
  }
}

// The end of tokens_kernel: two tokens a lane of one warp.
__device__ __forceinline__ void write_gates(const Args& a, const Chunk& c, int head, const TokensShared& s) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  float whole = 0, ends = 0, dg[2];
  for (int w = 0; w < kWarps; ++w) whole += s.dots[w];
  for (int i = 0; i < 2; ++i) {
    const int token = 2 * lane + i;
    dg[i] = 0;
    for (int w = 0; w < kBeside; ++w) dg[i] += s.sums[w][token], ends += s.end[w][token];
  }
#pragma unroll
  for (int m = 16; m > 0; m /= 2) ends += shuffle_xor(ends, m);
  const int last = c.count - 1;
  if (last / 2 == lane) dg[last % 2] += ends + expf(s.of[last].log) * whole;
  float sum = dg[0] + dg[1];  // of this lane and all after it
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float after = __shfl_down_sync(0xffffffffu, sum, step);
    if (lane + step < 32) sum += after;
  }
  const float dlog[2] = {sum, sum - dg[0]};
  const float rate = -expf(a.a_log[head]);
  for (int i = 0; i < 2; ++i) {
    const int token = 2 * lane + i;
    if (token >= c.count) continue;
    const int64_t t = c.first + token;
    const float x = to_float(a.ba[t * a.ldba + a.heads + head]) + a.dt_bias[head], slope = dlog[i] * rate * sigmoid(x);
    a.dba[t * a.lddba + head] = from_float<bf16>(s.diagonal[token] * (1 - s.of[token].beta));
    a.dba[t * a.lddba + a.heads + head] = from_float<bf16>(slope);
    a.dlog[(t * a.heads + head) * 2] = dlog[i] * rate * softplus(x);
    a.dlog[(t * a.heads + head) * 2 + 1] = slope;
  }
}

__global__ void __launch_bounds__(kMany, 1) tokens_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) char space[];
  auto& s = *reinterpret_cast<TokensShared*>(space);
  const Chunk c = chunk_of(a, blockIdx.x);
  if (c.count == 0) return;
  const int head = blockIdx.y, warp = threadIdx.x / 32;
  const int row = warp / kBeside * 16, column = warp % kBeside * 32, token_column = warp % kBeside * 16;
  const float* state = c.index == 0 ? nullptr : a.states + state_at(a, c.begin, c.index, head);
  const float* dstate = c.last ? nullptr : a.dstates + state_at(a, c.begin, c.index + 1, head);
  const int64_t per_token = static_cast<int64_t>(a.heads) * kDim, at = (c.first * a.heads + head) * kDim;
  float dq[1][4][4], early[1][4][4], late[1][4][4], dp[1][2][4], m[1][2][4], dot = 0;
  clear(dq), clear(early), clear(late), clear(dp), clear(m);
  if (threadIdx.x < kChunk) {
    Coefficients x{0, 0, 0, 0};
    if (static_cast<int>(threadIdx.x) < c.count) x = a.coefficients[(c.first + threadIdx.x) * a.heads + head];
    s.of[threadIdx.x] = x;
  }
  for (int half = 0; half < kDim; half += kHalf) {
    States& h = s.states;
    __syncthreads();
    fetch_state<kHalf, kAlong, kMany>(h.s, state == nullptr ? nullptr : state + half);
    fetch_state<kHalf, kAlong, kMany>(h.ds, dstate == nullptr ? nullptr : dstate + half);
    fetch_rows<kHalf, kAlong, kMany>(h.dx, a.dx + at + half, per_token, c.count);
    fetch_rows<kHalf, kAlong, kMany>(h.r, a.r + at + half, per_token, c.count);
    fetch_rows<kHalf, kNarrow, kMany>(h.dout, a.dout + c.first * a.lddout + head * kDim + half, a.lddout, c.count);
    copies_wait_all();
    __syncthreads();
    const auto of_dout = [&](int i, int k) { return two(h.dout + (row + i) * kNarrow + k); };
    const auto of_dx = [&](int i, int k) { return round_two(h.dx + (row + i) * kAlong + k); };
    product_twice<kHalf>(dq, early, of_dout, of_dx,
                         [&](int k, int j) { return round_two(h.s + (column + j) * kAlong + k); });
    product<kHalf>(
        late, [&](int i, int k) { return round_two(h.r + (row + i) * kAlong + k); },
        [&](int k, int j) { return round_two(h.ds + (column + j) * kAlong + k); });
    product_twice<kHalf>(dp, m, of_dout, of_dx,
                         [&](int k, int j) { return round_two(h.r + (token_column + j) * kAlong + k); });
    for (int i = threadIdx.x; i < kDim * kHalf; i += kMany)
      dot += h.s[i / kHalf * kAlong + i % kHalf] * h.ds[i / kHalf * kAlong + i % kHalf];
  }
  constexpr int kPacks = kDim / 8, kOwn = kChunk * kPacks / kMany;
  Raw<bf16, 8> keys[kOwn], queries[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int place = threadIdx.x + i * kMany, m = place / kPacks, n = place % kPacks * 8;
    keys[i].x = queries[i].x = make_uint4(0, 0, 0, 0);
    if (m >= c.count) continue;
    keys[i] = load<bf16, 8>(a.qkv, a.k_at(c.first + m, head) + n);
    queries[i] = load<bf16, 8>(a.qkv, a.q_at(c.first + m, head) + n);
  }
  __syncthreads();
  Rows& h = s.rows;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int place = threadIdx.x + i * kMany, m = place / kPacks, n = place % kPacks * 8;
    float k[8], q[8];
    keys[i].unpack(k), queries[i].unpack(q);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      h.k[m * kHats + n + j] = rounded(k[j] * s.of[m].k_scale);
      h.q[m * kHats + n + j] = rounded(q[j] * s.of[m].q_scale);
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) dot += shuffle_xor(dot, step);
  if (threadIdx.x % 32 == 0) s.dots[warp] = dot;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int i = row + g + 4 * (e & 2);
    const Coefficients mine = s.of[i];
#pragma unroll
    for (int f = 0; f < 2; ++f) {
      const int j = token_column + 8 * f + 2 * t + e % 2;
      const float kept = j <= i && i < c.count ? __expf(mine.log - s.of[j].log) : 0.0f;
      h.dp[i * kAlong + j] = rounded(dp[0][f][e] * kept);
      h.n[i * kAlong + j] = j < i ? rounded(-mine.beta * m[0][f][e] * kept) : 0.0f;
      if (i == j) s.diagonal[i] = m[0][f][e];
    }
  }
  const float whole = s.of[c.count - 1].log;
  each(dq, [&](int i, int, float& x) { x *= expf(s.of[row + i].log); });
  each(early, [&](int i, int, float& x) { x *= -s.of[row + i].beta * expf(s.of[row + i].log); });
  each(late, [&](int i, int, float& x) { x *= row + i < c.count ? expf(whole - s.of[row + i].log) : 0.0f; });
  __syncthreads();
  const auto k_hat = [&](int i, int j) { return h.k[i * kHats + column + j]; };
  const auto q_hat = [&](int i, int j) { return h.q[i * kHats + column + j]; };
  row_sums(s.end, row, [&](int i, int j, int f, int e) { return k_hat(i, j) * late[0][f][e]; });
  const auto right_k = [&](int k, int j) { return two_down(h.k + k * kHats + column + j, kHats); };
  product_twice<kChunk>(
      dq, early, [&](int i, int k) { return two(h.dp + (row + i) * kAlong + k); },
      [&](int i, int k) { return two(h.n + (row + i) * kAlong + k); }, right_k);
  product<kChunk>(late, [&](int i, int k) { return two_down(h.n + k * kAlong + row + i, kAlong); }, right_k);
  product<kChunk>(
      late, [&](int i, int k) { return two_down(h.dp + k * kAlong + row + i, kAlong); },
      [&](int k, int j) { return two_down(h.q + k * kHats + column + j, kHats); });
  row_sums(s.sums, row, [&](int i, int j, int f, int e) {
    return q_hat(i, j) * dq[0][f][e] + k_hat(i, j) * (early[0][f][e] - late[0][f][e]);
  });
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int i = row + g + 4 * e;
      if (i >= c.count) continue;
      const int64_t to = at + i * per_token + column + 8 * j + 2 * t;
      *reinterpret_cast<float2*>(a.dx + to) = make_float2(dq[0][j][e], dq[0][j][e + 1]);
      *reinterpret_cast<float2*>(a.r + to) =
          make_float2(early[0][j][e] + late[0][j][e], early[0][j][e + 1] + late[0][j][e + 1]);
    }
  __syncthreads();
  write_gates(a, c, head, s);
}

}  // namespace
}  // namespace delta

bool delta_chunks_cover(const GatedDeltaGrad& g) {
  // (The walk's is the forward pass's and less than the way back's.)
  if (std::max(sizeof(delta::BackShared), sizeof(delta::TokensShared)) > device::card().shared) return false;
  return delta::covers(g) && g.dout.ld % 8 == 0 && reinterpret_cast<uintptr_t>(g.dout.p) % 16 == 0 &&
         g.dqkv.ld % 2 == 0;
}

size_t delta_chunks_scratch(const GatedDeltaGrad& g) {
  const int64_t tokens = g.qkv.rows, heads = g.of.value_heads, place = delta::kDim * delta::kDim;
  return static_cast<size_t>(delta::prepared_floats(tokens, heads) + 2 * (tokens / delta::kChunk + 1) * heads * place +
                             tokens * heads * (2 * delta::kDim + 2)) *
         sizeof(float);
}

void delta_chunks_grad(cudaStream_t s, const GatedDeltaGrad& g, void* scratch) {
  const int64_t tokens = g.qkv.rows;
  delta::Args a = delta::args_of(g);
  a.states = delta::take_prepared(a, static_cast<float*>(scratch), tokens);
  const int64_t places = (tokens / delta::kChunk + 1) * a.heads * delta::kDim * delta::kDim;
  a.dstates = a.states + places;
  a.r = a.dstates + places;
  a.dx = a.r + tokens * a.heads * delta::kDim;
  a.dlog = a.dx + tokens * a.heads * delta::kDim;
  a.dout = static_cast<const bf16*>(g.dout.p), a.lddout = g.dout.ld;
  a.dqkv = static_cast<bf16*>(g.dqkv.p), a.lddqkv = g.dqkv.ld;
  a.dba = static_cast<bf16*>(g.dba.p), a.lddba = g.dba.ld;
  if (tokens > 0 && g.documents > 0) {
    delta::prepare(s, a, tokens);
    delta::walk(s, a, true);
    const dim3 grid(delta::kDim / delta::kHalf, static_cast<unsigned>(a.heads), static_cast<unsigned>(a.documents));
    allow_shared(delta::back_kernel, sizeof(delta::BackShared));
    delta::back_kernel<<<grid, delta::kThreads, sizeof(delta::BackShared), s>>>(a);
    check_launch("gated_delta_grad walk");
    allow_shared(delta::tokens_kernel, sizeof(delta::TokensShared));
    delta::tokens_kernel<<<delta::all_chunks(a, tokens), delta::kMany, sizeof(delta::TokensShared), s>>>(a);
    check_launch("gated_delta_grad chunks");
  }
  gated_delta_sums(s, g, a.dx, a.r, a.dlog);
}

}  // namespace mxt::kernels::cuda
