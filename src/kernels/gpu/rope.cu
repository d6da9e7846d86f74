// QK-norm and rotary embedding. The fast kernels give each head to a small group of lanes: a lane holds the pack at
// column i and its partner at i + head_dim/2, so the rotation needs no exchange, and the block walks over the heads of
// one token with the angles in registers. Other shapes (partial rotation, odd head sizes) take a lane-strided kernel,
// one warp a head.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 3;  // rounds of a block: 48 heads of 128
constexpr int kGradBlocks =
    264;  // blocks that walk over tokens where weights' gradients are wanted: their partial sums are few

struct RopeArgs {
  const void *in, *x;  // x: the forward's input, for the gradient
  void* out;
  int64_t ldin, ldx, ldout, tokens;
  int heads, kv_heads, head_dim, rotary;
  const int32_t* positions;
  const float *cos, *sin;
  Weights qw, kw;
  float* rstd_out;
  const float* rstd;
  float eps;
  bool in_place;
  float* partial;  // [blocks][2][head_dim] sums for dq_w and dk_w, or null
  const float* channel;
  uint8_t* q;  // the held copy of out, or null
  float* scale;
  int64_t ldq;
};

__device__ __forceinline__ float group_sum(float v, int lanes) {
  for (int m = lanes / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}

// Of V columns at a position. They are asked for behind the heads' packs, which must not wait for the position.
template <int V>
__device__ __forceinline__ void angles(const RopeArgs& a, int64_t position, int lane, float (&c)[V], float (&s)[V]) {
#pragma unroll
  for (int k = 0; k < V; ++k) c[k] = 1.0f, s[k] = 0.0f;
  if (a.rotary == 0) return;
  const int64_t at = position * (a.rotary / 2) + lane * V;
#pragma unroll
  for (int k = 0; k < V; k += 4) {
    const float4 four_c = *reinterpret_cast<const float4*>(a.cos + at + k),
                 four_s = *reinterpret_cast<const float4*>(a.sin + at + k);
    c[k] = four_c.x, c[k + 1] = four_c.y, c[k + 2] = four_c.z, c[k + 3] = four_c.w;
    s[k] = four_s.x, s[k + 1] = four_s.y, s[k + 2] = four_s.z, s[k + 3] = four_s.w;
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads, 6) rope_fast(RopeArgs a) {
  allow_next_grid();
  const int half = a.head_dim / 2, lanes = half / V;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = kThreads / lanes;
  const int64_t t = blockIdx.x;
  if (gridDim.x <= 8 && group == 0) {  // generation: nothing else brings them into the cache in time
    a.qw.prefetch_at(lane * V), a.qw.prefetch_at(half + lane * V), a.kw.prefetch_at(lane * V),
        a.kw.prefetch_at(half + lane * V);
    if (a.rotary > 0) {
      const int64_t at = static_cast<int64_t>(a.positions[t]) * (a.rotary / 2) + lane * V;
      prefetch(a.cos + at), prefetch(a.sin + at);
    }
  }
  wait_for_previous_grid();
  const int qk = a.heads + a.kv_heads, all = a.in_place ? qk : qk + a.kv_heads;
  const bool norm = a.qw.p != nullptr || a.kw.p != nullptr;
  float c[V], s[V];
  Raw<T, V> ahead0[kAhead], ahead1[kAhead];
  const int32_t position = a.rotary > 0 ? a.positions[t] : 0;
  // kAhead heads of a lane are read before the first is worked on: enough bytes in flight to fill the memory's pipe.
  for (int first = 0; first < all; first += groups) {  // the same count for every lane: shuffles need all of them
    if (first % (kAhead * groups) == 0) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int h = first + j * groups + group;
        const int64_t in = t * a.ldin + static_cast<int64_t>(h < all ? h : 0) * a.head_dim + lane * V;
        if (first + j * groups < all) ahead0[j] = load<T, V>(a.in, in), ahead1[j] = load<T, V>(a.in, in + half);
      }
      if (first == 0) angles<V>(a, position, lane, c, s);
    }
    const int h = first + group;
    const bool on = h < all && group < groups;  // five lanes a head leave three of a block's threads over
    const int64_t out = t * a.ldout + static_cast<int64_t>(h) * a.head_dim + lane * V;
    const Raw<T, V> r0 = ahead0[0], r1 = ahead1[0];
#pragma unroll
    for (int j = 0; j + 1 < kAhead; ++j) ahead0[j] = ahead0[j + 1], ahead1[j] = ahead1[j + 1];
    if (norm || h < qk) {
      float x0[V], x1[V];
      r0.unpack(x0);
      r1.unpack(x1);
      if (norm) {
        const Weights& w = h < a.heads ? a.qw : a.kw;
        float squares = 0;
#pragma unroll
        for (int k = 0; k < V; ++k) squares += x0[k] * x0[k] + x1[k] * x1[k];
        squares = group_sum(squares, lanes);
        const float rstd = w.p != nullptr ? 1.0f / sqrtf(squares / static_cast<float>(a.head_dim) + a.eps) : 1.0f;
        if (on && h < qk) {
          float w0[V], w1[V];
          w.get<V>(lane * V, w0, 1.0f);
          w.get<V>(half + lane * V, w1, 1.0f);
#pragma unroll
          for (int k = 0; k < V; ++k) x0[k] *= rstd * w0[k], x1[k] *= rstd * w1[k];
          if (lane == 0 && a.rstd_out != nullptr) a.rstd_out[t * qk + h] = rstd;
        }
      }
      if (on && h < qk) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const float y = x0[k] * c[k] - x1[k] * s[k];
          x1[k] = x1[k] * c[k] + x0[k] * s[k];
          x0[k] = y;
        }
        store<T, V>(a.out, out, Raw<T, V>::pack(x0));
        store<T, V>(a.out, out + half, Raw<T, V>::pack(x1));
      }
    }
    if (on && h >= qk) {
      store<T, V>(a.out, out, r0);
      store<T, V>(a.out, out + half, r1);
    }
  }
}

// SUMS: the weights' gradients are wanted too. Frozen norms leave the registers of their sums to more blocks at once.
// HELD: the token's row as E4M3 too, from the registers that it was made in: at most kAhead rounds of heads.
template <typename T, int V, bool SUMS, bool HELD>
__global__ void __launch_bounds__(kThreads, HELD ? 4 : 0) rope_grad_fast(RopeArgs a) {
  extern __shared__ float sums[];  // [groups][2][head_dim]
  const int half = a.head_dim / 2, lanes = half / V;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = kThreads / lanes;
  const int qk = a.heads + a.kv_heads, all = a.in_place && !HELD ? qk : qk + a.kv_heads;
  const bool norm = a.qw.p != nullptr || a.kw.p != nullptr;
  float dq0[V] = {}, dq1[V] = {}, dk0[V] = {}, dk1[V] = {};
  Raw<T, V> ahead0[kAhead], ahead1[kAhead], input0[kAhead], input1[kAhead];
  for (int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
    const int32_t position = a.rotary > 0 ? a.positions[t] : 0;
    float c[V], s[V], rstds[kAhead];
    for (int first = 0; first < all; first += kAhead * groups) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int h = first + j * groups + group;
        const int64_t in = static_cast<int64_t>(h < all ? h : 0) * a.head_dim + lane * V;
        if (first + j * groups >= all) continue;
        ahead0[j] = load<T, V>(a.in, t * a.ldin + in), ahead1[j] = load<T, V>(a.in, t * a.ldin + in + half);
        if (norm && first + j * groups < qk)
          input0[j] = load<T, V>(a.x, t * a.ldx + in), input1[j] = load<T, V>(a.x, t * a.ldx + in + half);
        if (norm && h < qk) rstds[j] = a.rstd[t * qk + h];
      }
      if (first == 0) angles<V>(a, position, lane, c, s);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (first + j * groups >= all) break;
        const int h = first + j * groups + group;
        const bool on = h < all && group < groups;
        const int64_t col = static_cast<int64_t>(on ? h : 0) * a.head_dim + lane * V;
        if (first + j * groups < qk) {
          float g0[V], g1[V];
          ahead0[j].unpack(g0);
          ahead1[j].unpack(g1);
#pragma unroll
          for (int k = 0; k < V; ++k) {
            const float y = g0[k] * c[k] + g1[k] * s[k];
            g1[k] = g1[k] * c[k] - g0[k] * s[k];
            g0[k] = y;
          }
          if (norm) {
            const bool is_q = h < a.heads, has = on && h < qk && (is_q ? a.qw.p : a.kw.p) != nullptr;
            const Weights& w = is_q ? a.qw : a.kw;
            float x0[V], x1[V], w0[V], w1[V];
            input0[j].unpack(x0);
            input1[j].unpack(x1);
            w.get<V>(lane * V, w0, 1.0f);
            w.get<V>(half + lane * V, w1, 1.0f);
            const float rstd = has ? rstds[j] : 1.0f;
            float dot = 0;
#pragma unroll
            for (int k = 0; k < V; ++k) {
              x0[k] *= rstd;
              x1[k] *= rstd;
              if (SUMS && has) {
                const float p0 = g0[k] * x0[k], p1 = g1[k] * x1[k];
                if (is_q)
                  dq0[k] += p0, dq1[k] += p1;
                else
                  dk0[k] += p0, dk1[k] += p1;
              }
              dot += g0[k] * w0[k] * x0[k] + g1[k] * w1[k] * x1[k];
            }
            dot = group_sum(dot, lanes) / static_cast<float>(a.head_dim);
            if (has) {
#pragma unroll
              for (int k = 0; k < V; ++k)
                g0[k] = rstd * (g0[k] * w0[k] - x0[k] * dot), g1[k] = rstd * (g1[k] * w1[k] - x1[k] * dot);
            }
          }
          if (h < qk) ahead0[j] = Raw<T, V>::pack(g0), ahead1[j] = Raw<T, V>::pack(g1);
        }
        if (!on || a.out == nullptr || (a.in_place && h >= qk)) continue;
        const int64_t out = t * a.ldout + col;
        store<T, V>(a.out, out, ahead0[j]);
        store<T, V>(a.out, out + half, ahead1[j]);
      }
    }
  }
  if constexpr (HELD) {  // a block a token
    __shared__ float space[kThreads / 32];
    const int64_t t = blockIdx.x;
    RowHolder<T, V> row{Channels{a.channel}, a.q + t * a.ldq};
    const auto pack_of = [&](int j) { return static_cast<int64_t>(j * groups + group) * (2 * lanes) + lane; };
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (j * groups + group >= all || group >= groups) continue;
      ahead0[j] = row.weigh(ahead0[j], pack_of(j)), ahead1[j] = row.weigh(ahead1[j], pack_of(j) + lanes);
      row.look(ahead0[j]), row.look(ahead1[j]);
    }
    row.settle(a.scale + t, space);
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (j * groups + group < all && group < groups)
        row.emit(ahead0[j], pack_of(j)), row.emit(ahead1[j], pack_of(j) + lanes);
  }
  if constexpr (!SUMS) return;
  float* mine = sums + group * 2 * a.head_dim;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    mine[lane * V + k] = dq0[k];
    mine[half + lane * V + k] = dq1[k];
    mine[a.head_dim + lane * V + k] = dk0[k];
    mine[a.head_dim + half + lane * V + k] = dk1[k];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * a.head_dim; i += kThreads) {
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += sums[g * 2 * a.head_dim + i];
    a.partial[static_cast<int64_t>(blockIdx.x) * 2 * a.head_dim + i] = sum;
  }
}

// One warp a head; a lane keeps elements lane, lane + kWarp, … of up to 256, partners come from memory. In place is
// safe: a lane writes what no other lane of another warp reads, and warps are synchronised between reading and writing.
constexpr int kPerLane = 256 / kWarp;

template <typename T, bool GRAD>
__global__ void __launch_bounds__(kThreads) rope_slow(RopeArgs a) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = kThreads / kWarp;
  const int half = a.rotary / 2, qk = a.heads + a.kv_heads, all = a.in_place ? qk : qk + a.kv_heads;
  extern __shared__ float sums[];  // GRAD with partial: [warps][2][head_dim]
  if (GRAD && a.partial != nullptr) {
    for (int i = threadIdx.x; i < warps * 2 * a.head_dim; i += kThreads) sums[i] = 0;
    __syncthreads();
  }
  for (int64_t t = blockIdx.x; t < a.tokens; t += gridDim.x)
    for (int h = warp; h < all; h += warps) {
      const T* in = static_cast<const T*>(a.in) + t * a.ldin + static_cast<int64_t>(h) * a.head_dim;
      T* out = static_cast<T*>(a.out) + t * a.ldout + static_cast<int64_t>(h) * a.head_dim;
      if (h >= qk) {
        for (int i = lane; i < a.head_dim; i += kWarp) out[i] = in[i];
        continue;
      }
      const Weights& w = h < a.heads ? a.qw : a.kw;
      const int64_t angle = half > 0 ? static_cast<int64_t>(a.positions[t]) * half : 0;
      float rstd = 1.0f, result[kPerLane];
      if (!GRAD && w.p != nullptr) {
        float squares = 0;
        for (int i = lane; i < a.head_dim; i += kWarp) squares += to_float(in[i]) * to_float(in[i]);
        rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.head_dim) + a.eps);
      }
      if (!GRAD && lane == 0 && a.rstd_out != nullptr && (a.qw.p != nullptr || a.kw.p != nullptr))
        a.rstd_out[t * qk + h] = rstd;
      auto value = [&](int i) {
        float wi[1];
        w.get<1>(i, wi, 1.0f);
        return GRAD ? to_float(in[i]) : to_float(in[i]) * rstd * wi[0];
      };
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int i = lane + j * kWarp;
        if (i >= a.head_dim) continue;
        float y = value(i);
        if (i < a.rotary) {
          const int p = i < half ? i : i - half;
          const float c = a.cos[angle + p], s = GRAD ? -a.sin[angle + p] : a.sin[angle + p];
          y = i < half ? y * c - value(i + half) * s : y * c + value(p) * s;
        }
        result[j] = y;
      }
      if (GRAD && w.p != nullptr) {
        const T* x = static_cast<const T*>(a.x) + t * a.ldx + static_cast<int64_t>(h) * a.head_dim;
        const float r = a.rstd[t * qk + h];
        float dot = 0;
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) {
          const int i = lane + j * kWarp;
          if (i >= a.head_dim) continue;
          float wi[1];
          w.get<1>(i, wi, 1.0f);
          const float xhat = to_float(x[i]) * r;
          if (a.partial != nullptr) sums[(warp * 2 + (h < a.heads ? 0 : 1)) * a.head_dim + i] += result[j] * xhat;
          result[j] *= wi[0];
          dot += result[j] * xhat;
        }
        dot = warp_sum(dot) / static_cast<float>(a.head_dim);
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) {
          const int i = lane + j * kWarp;
          if (i < a.head_dim) result[j] = r * (result[j] - to_float(x[i]) * r * dot);
        }
      }
      sync_warp();  // every lane has read its partners
#pragma unroll
      for (int j = 0; j < kPerLane; ++j)
        if (lane + j * kWarp < a.head_dim) out[lane + j * kWarp] = from_float<T>(result[j]);
    }
  if (!GRAD || a.partial == nullptr) return;
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * a.head_dim; i += kThreads) {
    float sum = 0;
    for (int g = 0; g < warps; ++g) sum += sums[g * 2 * a.head_dim + i];
    a.partial[static_cast<int64_t>(blockIdx.x) * 2 * a.head_dim + i] = sum;
  }
}

template <typename R>
RopeArgs arguments(const R& r, const ConstMat& in, const Mat& out) {
  RopeArgs a{};
  a.in = in.p;
  a.ldin = in.ld;
  a.out = out.p;
  a.ldout = out.ld;
  a.tokens = in.rows;
  a.heads = static_cast<int>(r.heads);
  a.kv_heads = static_cast<int>(r.kv_heads);
  a.head_dim = static_cast<int>(r.head_dim);
  a.rotary = static_cast<int>(r.rotary);
  a.positions = r.positions;
  a.cos = r.cos;
  a.sin = r.sin;
  a.qw = {r.q_w, r.wtype == DType::kBF16};
  a.kw = {r.k_w, r.wtype == DType::kBF16};
  a.in_place = in.p == out.p;
  return a;
}

// A norm's sums want groups of a power of two of lanes within a warp.
template <typename R>
bool is_fast(const R& r, DType type) {
  const int64_t v = elements_of_16_bytes(type), lanes = r.head_dim / 2 / v;
  const bool norm = r.q_w != nullptr || r.k_w != nullptr;
  return (r.rotary == r.head_dim || r.rotary == 0) && r.head_dim % (2 * v) == 0 && lanes > 0 && lanes <= kWarp &&
         (!norm || (lanes & (lanes - 1)) == 0) && wide(r.q_w) && wide(r.k_w) && wide(r.cos) && wide(r.sin);
}

int64_t grad_blocks(const QkNormRopeGrad& r) {
  const bool wants = r.dq_w != nullptr || r.dk_w != nullptr;
  return wants && r.dout.rows > kGradBlocks ? kGradBlocks : r.dout.rows;
}

}  // namespace

void qk_norm_rope(Stream s, const QkNormRope& r) {
  if (r.qkv.rows == 0) return;
  require(r.head_dim <= 256, "head_dim is at most 256");
  RopeArgs a = arguments(r, r.qkv, r.out);
  a.rstd_out = r.rstd;
  a.eps = r.eps;
  const auto blocks = static_cast<unsigned>(r.qkv.rows);
  if (is_fast(r, r.qkv.type) && wide(r.qkv) && wide(ConstMat(r.out))) {
    if (r.qkv.type == DType::kBF16)
      launch_dependent(rope_fast<bf16, 8>, dim3(blocks), dim3(kThreads), 0, s, a);
    else
      launch_dependent(rope_fast<float, 4>, dim3(blocks), dim3(kThreads), 0, s, a);
  } else if (r.qkv.type == DType::kBF16) {
    rope_slow<bf16, false><<<blocks, kThreads, 0, s>>>(a);
  } else {
    rope_slow<float, false><<<blocks, kThreads, 0, s>>>(a);
  }
  check_launch("qk_norm_rope");
}

size_t qk_norm_rope_grad_scratch(const QkNormRopeGrad& r) {
  return r.dq_w || r.dk_w ? static_cast<size_t>(grad_blocks(r) * 2 * r.head_dim) * sizeof(float) : 0;
}

void qk_norm_rope_grad(Stream s, const QkNormRopeGrad& r, void* scratch) {
  const int64_t blocks = grad_blocks(r);
  const bool wants = r.dq_w != nullptr || r.dk_w != nullptr;
  bool held_here = false;  // by the block that has made the row
  if (blocks > 0) {
    require(r.head_dim <= 256, "head_dim is at most 256");
    RopeArgs a = arguments(r, r.dout, r.dqkv);
    a.x = r.qkv.p;
    a.ldx = r.qkv.ld;
    a.rstd = r.rstd;
    a.partial = wants ? static_cast<float*>(scratch) : nullptr;
    const bool fast = is_fast(r, r.dout.type) && wide(r.dout) && wide(ConstMat(r.dqkv)) && wide(r.qkv);
    const auto grid = static_cast<unsigned>(blocks);
    if (fast) {
      const int64_t groups = kThreads / (r.head_dim / 2 / elements_of_16_bytes(r.dout.type));
      held_here = r.held.q.p != nullptr && !wants && wide(r.held) && r.heads + 2 * r.kv_heads <= kAhead * groups;
      if (held_here)
        a.q = static_cast<uint8_t*>(r.held.q.p), a.channel = r.held.channel, a.scale = r.held.scale,
        a.ldq = r.held.q.ld;
      if (held_here && !r.keep_dqkv) a.out = nullptr;
      const size_t bytes = wants ? static_cast<size_t>(groups * 2 * r.head_dim) * sizeof(float) : 0;
      const bool bf = r.dout.type == DType::kBF16;
      const auto kernel = bf ? (wants       ? rope_grad_fast<bf16, 8, true, false>
                                : held_here ? rope_grad_fast<bf16, 8, false, true>
                                            : rope_grad_fast<bf16, 8, false, false>)
                             : (wants       ? rope_grad_fast<float, 4, true, false>
                                : held_here ? rope_grad_fast<float, 4, false, true>
                                            : rope_grad_fast<float, 4, false, false>);
      kernel<<<grid, kThreads, bytes, s>>>(a);
    } else {
      const size_t bytes = wants ? static_cast<size_t>(kThreads / kWarp * 2 * r.head_dim) * sizeof(float) : 0;
      if (r.dout.type == DType::kBF16)
        rope_slow<bf16, true><<<grid, kThreads, bytes, s>>>(a);
      else
        rope_slow<float, true><<<grid, kThreads, bytes, s>>>(a);
    }
    check_launch("qk_norm_rope_grad");
  }
  if (r.held.q.p != nullptr && !held_here) quantize(s, {r.dqkv, r.held.channel, r.held.q, r.held.scale});
  if (!wants) return;
  const auto* partial = static_cast<const float*>(scratch);
  add_chunks(s, partial, blocks, 2 * r.head_dim, r.head_dim, r.dq_w, r.accumulate);
  add_chunks(s, partial + r.head_dim, blocks, 2 * r.head_dim, r.head_dim, r.dk_w, r.accumulate);
}

}  // namespace mxt::kernels::MXT_GPU_NS
