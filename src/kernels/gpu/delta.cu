// The gated delta rule (kernels/delta.h), token by token: a column of the state belongs to eight lanes, which hold its
// rows in registers, so that columns, heads and documents run side by side and what a document gives depends on nothing
// else. The gradient makes states again from those at every 64th token, and within them from every eighth.
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/shared.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kLanes = 8, kColumns = 32, kThreads = kLanes * kColumns, kTokens = 16;  // forward: of a block, at a time
constexpr int kChunk = 64, kPiece = 8, kMostThreads = 1024;

struct DeltaArgs {
  const void *qkv, *ba, *dout;
  const float *a_log, *dt_bias;
  void *out, *dqkv, *dba;
  float *states, *checkpoints;  // carried; one for each 64th token, null: not wanted
  float *dq, *dk, *dlog;        // [tokens, value_heads, key_dim] twice; [tokens, value_heads, 2]
  const int32_t *cu, *slot, *context;
  int64_t ldqkv, ldba, ldout, lddout, lddqkv, lddba;
  int key_heads, heads, kd, vd;
  bool half, carried;
};

__device__ __forceinline__ float softplus(float x) { return x > 30.0f ? x : log1pf(expf(x)); }
__device__ __forceinline__ float over_lanes(float v) {
#pragma unroll
  for (int m = kLanes / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}

// k̂, q̂ (with its scale), α and β of `count` tokens from `begin` on, by warps.
struct TokenRows {
  float *k, *q, *alpha, *beta;
};
__device__ __forceinline__ void load_tokens(const DeltaArgs& a, int head, int64_t begin, int count, TokenRows to) {
  const int lane = threadIdx.x % kWarp, key = head * a.key_heads / a.heads;
  const int64_t keys = static_cast<int64_t>(a.key_heads) * a.kd;
  for (int t = threadIdx.x / kWarp; t < count; t += blockDim.x / kWarp) {
    const int64_t at = (begin + t) * a.ldqkv + key * a.kd;
    float qq = 0, kk = 0;
    for (int i = lane; i < a.kd; i += kWarp) {
      const float q = get(a.qkv, a.half, at + i), k = get(a.qkv, a.half, at + keys + i);
      qq += q * q, kk += k * k;
    }
    const float q_inv = rsqrtf(warp_sum(qq) + 1e-6f) * rsqrtf(static_cast<float>(a.kd)),
                k_inv = rsqrtf(warp_sum(kk) + 1e-6f);
    for (int i = lane; i < a.kd; i += kWarp) {
      to.q[t * a.kd + i] = get(a.qkv, a.half, at + i) * q_inv;
      to.k[t * a.kd + i] = get(a.qkv, a.half, at + keys + i) * k_inv;
    }
    if (lane == 0) {
      const float b = get(a.ba, a.half, (begin + t) * a.ldba + head),
                  x = get(a.ba, a.half, (begin + t) * a.ldba + a.heads + head) + a.dt_bias[head];
      to.beta[t] = sigmoid(b);
      to.alpha[t] = expf(-expf(a.a_log[head]) * softplus(x));
    }
  }
}

// S before a token to S after it; returns u = v − (αS)ᵀk.
template <int kPer>
__device__ __forceinline__ float advance(float (&s)[kPer], const float* k, int kd, int lane, float alpha, float beta,
                                         float v) {
  float read = 0;
#pragma unroll
  for (int m = 0; m < kPer; ++m) {
    s[m] *= alpha;
    const int i = lane + kLanes * m;
    if (i < kd) read += s[m] * k[i];
  }
  const float u = v - over_lanes(read), r = beta * u;
#pragma unroll
  for (int m = 0; m < kPer; ++m) {
    const int i = lane + kLanes * m;
    if (i < kd) s[m] += k[i] * r;
  }
  return u;
}

template <int kPer>
__global__ void __launch_bounds__(kThreads) delta_kernel(const __grid_constant__ DeltaArgs a) {
  extern __shared__ float shared[];
  __shared__ float alpha[kTokens], beta[kTokens];
  const TokenRows rows{shared, shared + kTokens * a.kd, alpha, beta};
  const int lane = threadIdx.x % kLanes, j = blockIdx.x * kColumns + threadIdx.x / kLanes, head = blockIdx.y;
  const int64_t d = blockIdx.z, begin = a.cu[d], end = a.cu[d + 1];
  const bool mine = j < a.vd, fresh = !a.carried || a.context[d] == end - begin;
  const int64_t value = 2 * static_cast<int64_t>(a.key_heads) * a.kd + head * a.vd + j,
                place = static_cast<int64_t>(a.kd) * a.vd;
  float* state = a.carried ? a.states + (static_cast<int64_t>(a.slot[d]) * a.heads + head) * place : nullptr;
  float s[kPer];
#pragma unroll
  for (int m = 0; m < kPer; ++m) {
    const int i = lane + kLanes * m;
    s[m] = !fresh && mine && i < a.kd ? state[static_cast<int64_t>(i) * a.vd + j] : 0.0f;
  }
  for (int64_t from = begin; from < end; from += kTokens) {
    if (a.checkpoints != nullptr && from > begin && (from - begin) % kChunk == 0 && mine) {
      float* to = a.checkpoints + ((begin / kChunk + (from - begin) / kChunk - 1) * a.heads + head) * place;
#pragma unroll
      for (int m = 0; m < kPer; ++m) {
        const int i = lane + kLanes * m;
        if (i < a.kd) to[static_cast<int64_t>(j) * a.kd + i] = s[m];
      }
    }
    const int count = static_cast<int>(end - from < kTokens ? end - from : kTokens);
    __syncthreads();
    load_tokens(a, head, from, count, rows);
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      const float v = mine ? get(a.qkv, a.half, (from + t) * a.ldqkv + value) : 0.0f;
      advance<kPer>(s, rows.k + t * a.kd, a.kd, lane, alpha[t], beta[t], v);
      if (a.out == nullptr) continue;
      float o = 0;
#pragma unroll
      for (int m = 0; m < kPer; ++m) {
        const int i = lane + kLanes * m;
        if (i < a.kd) o += s[m] * rows.q[t * a.kd + i];
      }
      o = over_lanes(o);
      if (mine && lane == 0) put(a.out, a.half, (from + t) * a.ldout + head * a.vd + j, o);
    }
  }
  if (state == nullptr || !mine) return;
#pragma unroll
  for (int m = 0; m < kPer; ++m) {
    const int i = lane + kLanes * m;
    if (i < a.kd) state[static_cast<int64_t>(i) * a.vd + j] = s[m];
  }
}

// With S' = αS₋, r = βu, u = v − S'ᵀk, S = S' + k·rᵀ, o = Sᵀq, and D the derivative by S:
//   D += q·doᵀ   dq = S·do   dr = Dᵀk   dk = D·r − S'·du   du = β·dr = dv   dβ = dr·u   D' = D − k·duᵀ
//   dα = ⟨D', S₋⟩   D₋ = α·D'
// A block a head and document: what is summed over columns is summed in it.
template <int kPer>
__global__ void __launch_bounds__(kMostThreads) delta_grad_kernel(const __grid_constant__ DeltaArgs a) {
  extern __shared__ float shared[];
  __shared__ float alpha[kChunk], beta[kChunk];
  __shared__ float sums[2][kMostThreads / kWarp];
  const TokenRows rows{shared, shared + kChunk * a.kd, alpha, beta};
  float* parts = shared + 2 * kChunk * a.kd;  // [warps][2][kd]
  const int lane = threadIdx.x % kLanes, j = threadIdx.x / kLanes, head = blockIdx.x;
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int64_t d = blockIdx.y, begin = a.cu[d], n = a.cu[d + 1] - begin,
                keys = static_cast<int64_t>(a.key_heads) * a.kd;
  const bool mine = j < a.vd;
  const int64_t value = 2 * keys + head * a.vd + j, place = static_cast<int64_t>(a.kd) * a.vd;
  float grad[kPer] = {};
  for (int64_t chunk = (n + kChunk - 1) / kChunk; chunk-- > 0;) {
    const int64_t from = begin + chunk * kChunk;
    const int count = static_cast<int>(begin + n - from < kChunk ? begin + n - from : kChunk);
    __syncthreads();
    load_tokens(a, head, from, count, rows);
    __syncthreads();
    auto v_of = [&](int t) { return mine ? get(a.qkv, a.half, (from + t) * a.ldqkv + value) : 0.0f; };
    float s[kPer], pieces[kChunk / kPiece][kPer];
    const float* kept = a.checkpoints + ((begin / kChunk + chunk - 1) * a.heads + head) * place;
#pragma unroll
    for (int m = 0; m < kPer; ++m) {
      const int i = lane + kLanes * m;
      s[m] = chunk > 0 && mine && i < a.kd ? kept[static_cast<int64_t>(j) * a.kd + i] : 0.0f;
    }
    for (int t = 0; t < count; ++t) {
      if (t % kPiece == 0)
        for (int m = 0; m < kPer; ++m) pieces[t / kPiece][m] = s[m];
      advance<kPer>(s, rows.k + t * a.kd, a.kd, lane, alpha[t], beta[t], v_of(t));
    }
    for (int piece = (count + kPiece - 1) / kPiece; piece-- > 0;) {
      const int first = piece * kPiece, last = count < first + kPiece ? count : first + kPiece;
      float before[kPiece][kPer], us[kPiece];
#pragma unroll
      for (int m = 0; m < kPer; ++m) s[m] = pieces[piece][m];
      for (int t = first; t < last; ++t) {
        for (int m = 0; m < kPer; ++m) before[t - first][m] = s[m];
        us[t - first] = advance<kPer>(s, rows.k + t * a.kd, a.kd, lane, alpha[t], beta[t], v_of(t));
      }
      for (int t = last; t-- > first;) {
        const float *k = rows.k + t * a.kd, *q = rows.q + t * a.kd;
        const float u = us[t - first], r = beta[t] * u,
                    go = mine ? get(a.dout, a.half, (from + t) * a.lddout + head * a.vd + j) : 0.0f;
        float dr = 0;
#pragma unroll
        for (int m = 0; m < kPer; ++m) {
          const int i = lane + kLanes * m;
          if (i >= a.kd) continue;
          grad[m] += q[i] * go;
          dr += grad[m] * k[i];
        }
        dr = over_lanes(dr);
        const float du = beta[t] * dr;
        float dalpha = 0;
#pragma unroll
        for (int m = 0; m < kPer; ++m) {
          const int i = lane + kLanes * m;
          float dq = 0, dk = 0;
          if (i < a.kd) {
            const float old = before[t - first][m], scaled = alpha[t] * old;
            dq = (scaled + k[i] * r) * go;
            dk = grad[m] * r - scaled * du;
            grad[m] -= k[i] * du;
            dalpha += grad[m] * old;
            grad[m] *= alpha[t];
          }
          dq += shuffle_xor(dq, 8), dk += shuffle_xor(dk, 8);
          dq += shuffle_xor(dq, 16), dk += shuffle_xor(dk, 16);
          if (threadIdx.x % kWarp < kLanes && i < a.kd)
            parts[(warp * 2) * a.kd + i] = dq, parts[(warp * 2 + 1) * a.kd + i] = dk;
        }
        if (mine && lane == 0) put(a.dqkv, a.half, (from + t) * a.lddqkv + value, du);
        const float whole_alpha = warp_sum(dalpha), whole_beta = warp_sum(lane == 0 ? dr * u : 0.0f);
        if (threadIdx.x % kWarp == 0) sums[0][warp] = whole_alpha, sums[1][warp] = whole_beta;
        __syncthreads();
        const int64_t row = (from + t) * a.heads + head;
        for (int i = threadIdx.x; i < 2 * a.kd; i += blockDim.x) {
          float sum = 0;
          for (int w = 0; w < warps; ++w) sum += parts[(w * 2 + i / a.kd) * a.kd + i % a.kd];
          (i < a.kd ? a.dq : a.dk)[row * a.kd + i % a.kd] = sum;
        }
        if (threadIdx.x == 0) {
          float da = 0, db = 0;
          for (int w = 0; w < warps; ++w) da += sums[0][w], db += sums[1][w];
          // log α = −exp(a_log)·softplus(x), x = a + dt_bias
          const float x = get(a.ba, a.half, (from + t) * a.ldba + a.heads + head) + a.dt_bias[head];
          const float rate = -expf(a.a_log[head]), dlog = alpha[t] * da;
          put(a.dba, a.half, (from + t) * a.lddba + head, db * beta[t] * (1 - beta[t]));
          put(a.dba, a.half, (from + t) * a.lddba + a.heads + head, dlog * rate * sigmoid(x));
          a.dlog[row * 2] = dlog * rate * softplus(x);
          a.dlog[row * 2 + 1] = dlog * rate * sigmoid(x);
        }
        __syncthreads();
      }
    }
  }
}

// dq and dk of a key head: what its value heads gave, through the normalisation. x̂ = x·inv: dx = inv·(dx̂ − x̂·(x̂·dx̂)).
__global__ void __launch_bounds__(kWarp * 2) delta_keys_kernel(const __grid_constant__ DeltaArgs a) {
  const int64_t t = blockIdx.x;
  const int key = blockIdx.y, part = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = a.heads / a.key_heads;
  const int64_t at = part * static_cast<int64_t>(a.key_heads) * a.kd + key * a.kd;
  const float scale = part == 0 ? rsqrtf(static_cast<float>(a.kd)) : 1.0f;
  const float* given = part == 0 ? a.dq : a.dk;
  auto d_hat = [&](int i) {
    float sum = 0;
    for (int h = key * group; h < (key + 1) * group; ++h) sum += given[(t * a.heads + h) * a.kd + i];
    return sum * scale;
  };
  float square = 0, dot = 0;
  for (int i = lane; i < a.kd; i += kWarp) {
    const float x = get(a.qkv, a.half, t * a.ldqkv + at + i);
    square += x * x;
    dot += x * d_hat(i);
  }
  const float inv = rsqrtf(warp_sum(square) + 1e-6f);
  dot = warp_sum(dot) * inv;
  for (int i = lane; i < a.kd; i += kWarp) {
    const float hat = get(a.qkv, a.half, t * a.ldqkv + at + i) * inv;
    put(a.dqkv, a.half, t * a.lddqkv + at + i, inv * (d_hat(i) - hat * dot));
  }
}

// The same for keys of 128 columns, four a lane, of a wavefront of 32: each given row is read once.
constexpr int kFour = 4, kFourDim = 128;
__global__ void __launch_bounds__(64) delta_keys_four_kernel(const __grid_constant__ DeltaArgs a) {
  const int64_t t = blockIdx.x;
  const int key = blockIdx.y, part = threadIdx.x / 32, i = threadIdx.x % 32 * kFour, group = a.heads / a.key_heads;
  const int64_t at = (part * static_cast<int64_t>(a.key_heads) + key) * kFourDim + i;
  const float* given = (part == 0 ? a.dq : a.dk) + (t * a.heads + static_cast<int64_t>(key) * group) * kFourDim + i;
  float d[kFour] = {}, x[kFour], square = 0, dot = 0;
  for (int h = 0; h < group; ++h) {
    const float4 one = *reinterpret_cast<const float4*>(given + h * kFourDim);
    d[0] += one.x, d[1] += one.y, d[2] += one.z, d[3] += one.w;
  }
  const float scale = part == 0 ? rsqrtf(static_cast<float>(kFourDim)) : 1.0f;
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    x[k] = get(a.qkv, a.half, t * a.ldqkv + at + k);
    d[k] *= scale;
    square += x[k] * x[k];
    dot += x[k] * d[k];
  }
#pragma unroll
  for (int m = 16; m > 0; m /= 2) square += shuffle_xor(square, m), dot += shuffle_xor(dot, m);
  const float inv = rsqrtf(square + 1e-6f);
#pragma unroll
  for (int k = 0; k < kFour; ++k) put(a.dqkv, a.half, t * a.lddqkv + at + k, inv * (d[k] - x[k] * inv * (dot * inv)));
}

__global__ void __launch_bounds__(256)
    delta_rates_kernel(const float* dlog, int64_t tokens, int heads, float* da_log, float* ddt, bool accumulate) {
  __shared__ float space[256 / kWarp];
  const int head = blockIdx.x;
  float a = 0, b = 0;
  for (int64_t t = threadIdx.x; t < tokens; t += 256)
    a += dlog[(t * heads + head) * 2], b += dlog[(t * heads + head) * 2 + 1];
  a = block_sum(a, space);
  b = block_sum(b, space);
  if (threadIdx.x != 0) return;
  if (da_log != nullptr) da_log[head] = (accumulate ? da_log[head] : 0.0f) + a;
  if (ddt != nullptr) ddt[head] = (accumulate ? ddt[head] : 0.0f) + b;
}

template <typename G>
DeltaArgs args_of(const G& g) {
  DeltaArgs a{};
  require(g.of.key_dim <= 256, "heads of a delta layer have at most 256 columns of keys");
  a.qkv = g.qkv.p, a.ba = g.ba.p, a.ldqkv = g.qkv.ld, a.ldba = g.ba.ld;
  a.a_log = static_cast<const float*>(g.a_log.p), a.dt_bias = static_cast<const float*>(g.dt_bias.p);
  a.cu = g.cu_seqlens;
  a.key_heads = static_cast<int>(g.of.key_heads), a.heads = static_cast<int>(g.of.value_heads);
  a.kd = static_cast<int>(g.of.key_dim), a.vd = static_cast<int>(g.of.value_dim);
  a.half = g.qkv.type == DType::kBF16;
  return a;
}

void walk(Stream s, const DeltaArgs& a, int64_t documents) {
  const dim3 grid(static_cast<unsigned>(ceil_div(a.vd, kColumns)), static_cast<unsigned>(a.heads),
                  static_cast<unsigned>(documents));
  const size_t shared = 2 * kTokens * static_cast<size_t>(a.kd) * sizeof(float);
  if (a.kd <= 4 * kLanes)
    delta_kernel<4><<<grid, kThreads, shared, s>>>(a);
  else if (a.kd <= 16 * kLanes)
    delta_kernel<16><<<grid, kThreads, shared, s>>>(a);
  else
    delta_kernel<32><<<grid, kThreads, shared, s>>>(a);
  check_launch("gated_delta");
}

}  // namespace

void gated_delta(Stream s, const GatedDelta& g) {
  if (g.qkv.rows == 0 || g.documents == 0) return;
  DeltaArgs a = args_of(g);
  a.out = g.out.p, a.ldout = g.out.ld;
  a.carried = g.carried.on;
  a.states = static_cast<float*>(g.carried.states), a.slot = g.carried.slot, a.context = g.carried.context;
  walk(s, a, g.documents);
}

size_t gated_delta_grad_scratch(const GatedDeltaGrad& g) {
  const int64_t tokens = g.qkv.rows, heads = g.of.value_heads, place = g.of.key_dim * g.of.value_dim;
  return static_cast<size_t>((tokens / kChunk + 1) * heads * place + tokens * heads * (2 * g.of.key_dim + 2)) *
         sizeof(float);
}

void gated_delta_grad(Stream s, const GatedDeltaGrad& g, void* scratch) {
  const int64_t tokens = g.qkv.rows;
  DeltaArgs a = args_of(g);
  require(g.of.value_dim * kLanes <= kMostThreads, "heads of a delta layer have at most 128 columns of values");
  a.checkpoints = static_cast<float*>(scratch);
  a.dq = a.checkpoints + (tokens / kChunk + 1) * a.heads * a.kd * a.vd;
  a.dk = a.dq + tokens * a.heads * a.kd;
  a.dlog = a.dk + tokens * a.heads * a.kd;
  a.dout = g.dout.p, a.lddout = g.dout.ld;
  a.dqkv = g.dqkv.p, a.lddqkv = g.dqkv.ld, a.dba = g.dba.p, a.lddba = g.dba.ld;
  if (tokens > 0 && g.documents > 0) {
    walk(s, a, g.documents);
    const auto threads = static_cast<unsigned>(ceil_div(a.vd * kLanes, kWarp) * kWarp);
    const dim3 grid(static_cast<unsigned>(a.heads), static_cast<unsigned>(g.documents));
    const size_t shared =
        static_cast<size_t>(2 * kChunk + 2 * threads / kWarp) * static_cast<size_t>(a.kd) * sizeof(float);
    const auto run = [&](auto kernel) {
      allow_shared(kernel, shared);
      kernel<<<grid, threads, shared, s>>>(a);
    };
    if (a.kd <= 4 * kLanes)
      run(delta_grad_kernel<4>);
    else if (a.kd <= 16 * kLanes)
      run(delta_grad_kernel<16>);
    else
      run(delta_grad_kernel<32>);
    check_launch("gated_delta_grad");
  }
  gated_delta_sums(s, g, a.dq, a.dk, a.dlog);
}

void gated_delta_sums(Stream s, const GatedDeltaGrad& g, float* dq, float* dk, float* dlog) {
  const int64_t tokens = g.qkv.rows;
  DeltaArgs a = args_of(g);
  a.dq = dq, a.dk = dk;
  a.dqkv = g.dqkv.p, a.lddqkv = g.dqkv.ld;
  if (tokens > 0 && g.documents > 0) {
    const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(a.key_heads));
    if (a.kd == kFourDim)
      delta_keys_four_kernel<<<grid, 64, 0, s>>>(a);
    else
      delta_keys_kernel<<<grid, kWarp * 2, 0, s>>>(a);
    check_launch("gated_delta_keys");
  }
  delta_rates_kernel<<<static_cast<unsigned>(a.heads), 256, 0, s>>>(dlog, tokens, a.heads, g.da_log, g.ddt_bias,
                                                                    g.accumulate);
  check_launch("gated_delta_rates");
}

}  // namespace mxt::kernels::MXT_GPU_NS
