// What gpt-oss adds (kernels/gpt_oss.h): each reads and writes its rows once. Of many sums every one has its own order:
// a warp takes a token of a head, a block a head's tokens, a thread a column of an expert's rows.
#include "kernels/gpt_oss.h"

#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kLanes = 32;

// ln(eᵃ + eᵇ)
__device__ __forceinline__ float log_add(float a, float b) { return fmaxf(a, b) + log1pf(expf(-fabsf(a - b))); }

__device__ __forceinline__ float sum_of_lanes(float v) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}

struct SinkArgs {
  void* out;
  const void* dout;
  float *lse, *parts;
  const float* sinks;
  int64_t ld, ld_dout, tokens;
  int heads, d;
  bool half;
};
// The (token, head) of these 32 threads.
__device__ __forceinline__ int64_t unit_of_lanes() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
}

__global__ void __launch_bounds__(kThreads) sinks_kernel(const __grid_constant__ SinkArgs a) {
  const int64_t unit = unit_of_lanes();
  if (unit >= a.tokens * a.heads) return;
  const int64_t t = unit / a.heads, h = unit % a.heads;
  const float lse = a.lse[h * a.tokens + t], all = log_add(lse, a.sinks[h]), part = expf(lse - all);
  sync_warp();  // before the first lane writes it
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int i = lane; i < a.d; i += kLanes) {
    const int64_t at = t * a.ld + h * a.d + i;
    put(a.out, a.half, at, part * get(a.out, a.half, at));
  }
  if (lane == 0) a.lse[h * a.tokens + t] = all;
}

__global__ void __launch_bounds__(kThreads) sinks_parts_kernel(const __grid_constant__ SinkArgs a) {
  const int64_t unit = unit_of_lanes();
  if (unit >= a.tokens * a.heads) return;
  const int64_t t = unit / a.heads, h = unit % a.heads;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float dot = 0;
  for (int i = lane; i < a.d; i += kLanes)
    dot += get(a.out, a.half, t * a.ld + h * a.d + i) * get(a.dout, a.half, t * a.ld_dout + h * a.d + i);
  dot = sum_of_lanes(dot);
  if (lane == 0) a.parts[h * a.tokens + t] = -expf(a.sinks[h] - a.lse[h * a.tokens + t]) * dot;
}

__global__ void __launch_bounds__(kThreads)
    sinks_sum_kernel(const float* parts, int64_t tokens, float* dsinks, bool accumulate) {
  __shared__ double sums[kThreads];
  const int64_t h = blockIdx.x;
  const int i = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int64_t t = i; t < tokens; t += kThreads) sum += static_cast<double>(parts[h * tokens + t]);
  sums[i] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (i < half) sums[i] += sums[i + half];
    __syncthreads();
  }
  if (i == 0) dsinks[h] = static_cast<float>(sums[0] + (accumulate ? static_cast<double>(dsinks[h]) : 0.0));
}

struct GluArgs {
  const void *x, *dy;
  void* to;  // y, or dx
  int64_t ldx, ld_dy, ld, cols, all;
  float alpha, limit;
  bool half;
};
__device__ __forceinline__ float clamped(float v, float low, float high) { return fminf(fmaxf(v, low), high); }

__global__ void __launch_bounds__(kThreads) glu_kernel(const __grid_constant__ GluArgs g) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.all) return;
  const int64_t t = i / g.cols, c = i % g.cols;
  const float gate = fminf(get(g.x, g.half, t * g.ldx + c), g.limit),
              up = clamped(get(g.x, g.half, t * g.ldx + g.cols + c), -g.limit, g.limit);
  put(g.to, g.half, t * g.ld + c, (up + 1.0f) * gate * sigmoid(g.alpha * gate));
}

__global__ void __launch_bounds__(kThreads) glu_grad_kernel(const __grid_constant__ GluArgs g) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.all) return;
  const int64_t t = i / g.cols, c = i % g.cols;
  const float x = get(g.x, g.half, t * g.ldx + c), z = get(g.x, g.half, t * g.ldx + g.cols + c),
              dy = get(g.dy, g.half, t * g.ld_dy + c);
  const float gate = fminf(x, g.limit), up = clamped(z, -g.limit, g.limit), s = sigmoid(g.alpha * gate);
  put(g.to, g.half, t * g.ld + c, x <= g.limit ? dy * (up + 1.0f) * s * (1.0f + g.alpha * gate * (1.0f - s)) : 0.0f);
  put(g.to, g.half, t * g.ld + g.cols + c, z >= -g.limit && z <= g.limit ? dy * gate * s : 0.0f);
}

struct BiasArgs {
  void* y;
  const void *bias, *dy;
  const int32_t* first;
  float* dbias;
  int64_t ld, rows, cols, experts;
  bool half, accumulate;
};

__global__ void __launch_bounds__(kThreads) expert_bias_kernel(const __grid_constant__ BiasArgs b) {
  __shared__ int64_t expert;
  const int64_t row = blockIdx.x;
  if (threadIdx.x == 0) {
    int64_t low = 0, high = b.experts;  // the last expert that begins at or before the row
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (b.first[middle] <= row)
        low = middle;
      else
        high = middle;
    }
    expert = row < b.first[b.experts] ? low : -1;  // rows past the last are nobody's
  }
  __syncthreads();
  if (expert < 0) return;
  for (int64_t c = threadIdx.x; c < b.cols; c += kThreads)
    put(b.y, b.half, row * b.ld + c, get(b.y, b.half, row * b.ld + c) + get(b.bias, b.half, expert * b.cols + c));
}

__global__ void __launch_bounds__(kThreads) expert_bias_grad_kernel(const __grid_constant__ BiasArgs b) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, e = blockIdx.y;
  if (c >= b.cols) return;
  float sum = 0;
  for (int64_t row = b.first[e]; row < b.first[e + 1]; ++row) sum += get(b.dy, b.half, row * b.ld + c);
  float* to = b.dbias + e * b.cols + c;
  *to = sum + (b.accumulate ? *to : 0.0f);
}

unsigned blocks(int64_t all) { return static_cast<unsigned>(ceil_div(all, kThreads)); }

}  // namespace

void attention_sinks(Stream s, const AttentionSinks& c) {
  if (c.out.rows == 0) return;
  SinkArgs a{};
  a.out = c.out.p, a.ld = c.out.ld, a.lse = c.lse, a.sinks = c.sinks, a.tokens = c.out.rows;
  a.heads = static_cast<int>(c.heads), a.d = static_cast<int>(c.out.cols / c.heads);
  a.half = c.out.type == DType::kBF16;
  sinks_kernel<<<blocks(a.tokens * c.heads * kLanes), kThreads, 0, s>>>(a);
  check_launch("attention_sinks");
}

size_t attention_sinks_grad_scratch(const AttentionSinksGrad& c) {
  return static_cast<size_t>(c.heads * c.out.rows) * sizeof(float);
}

void attention_sinks_grad(Stream s, const AttentionSinksGrad& c, void* scratch) {
  SinkArgs a{};
  a.out = const_cast<void*>(c.out.p), a.ld = c.out.ld, a.dout = c.dout.p, a.ld_dout = c.dout.ld;
  a.lse = const_cast<float*>(c.lse), a.sinks = c.sinks, a.tokens = c.out.rows, a.parts = static_cast<float*>(scratch);
  a.heads = static_cast<int>(c.heads), a.d = static_cast<int>(c.out.cols / c.heads);
  a.half = c.out.type == DType::kBF16;
  if (a.tokens > 0) sinks_parts_kernel<<<blocks(a.tokens * c.heads * kLanes), kThreads, 0, s>>>(a);
  sinks_sum_kernel<<<static_cast<unsigned>(c.heads), kThreads, 0, s>>>(a.parts, a.tokens, c.dsinks, c.accumulate);
  check_launch("attention_sinks_grad");
}

void clamped_glu(Stream s, const ClampedGlu& c) {
  const int64_t all = c.y.rows * c.y.cols;
  if (all == 0) return;
  glu_kernel<<<blocks(all), kThreads, 0, s>>>(
      {c.x.p, nullptr, c.y.p, c.x.ld, 0, c.y.ld, c.y.cols, all, c.alpha, c.limit, c.x.type == DType::kBF16});
  check_launch("clamped_glu");
}

void clamped_glu_grad(Stream s, const ClampedGluGrad& c) {
  const int64_t all = c.dy.rows * c.dy.cols;
  if (all == 0) return;
  glu_grad_kernel<<<blocks(all), kThreads, 0, s>>>(
      {c.x.p, c.dy.p, c.dx.p, c.x.ld, c.dy.ld, c.dx.ld, c.dy.cols, all, c.alpha, c.limit, c.x.type == DType::kBF16});
  check_launch("clamped_glu_grad");
}

void expert_bias(Stream s, const ExpertBias& c) {
  if (c.y.rows == 0 || c.y.cols == 0) return;
  BiasArgs b{};
  b.y = c.y.p, b.ld = c.y.ld, b.bias = c.bias.p, b.first = c.first, b.experts = c.experts, b.cols = c.y.cols;
  b.half = c.y.type == DType::kBF16;
  expert_bias_kernel<<<static_cast<unsigned>(c.y.rows), kThreads, 0, s>>>(b);
  check_launch("expert_bias");
}

void expert_bias_grad(Stream s, const ExpertBiasGrad& c) {
  if (c.dy.cols == 0) return;
  BiasArgs b{};
  b.dy = c.dy.p, b.ld = c.dy.ld, b.first = c.first, b.dbias = c.dbias, b.cols = c.dy.cols;
  b.half = c.dy.type == DType::kBF16, b.accumulate = c.accumulate;
  const dim3 grid(blocks(c.dy.cols), static_cast<unsigned>(c.experts));
  expert_bias_grad_kernel<<<grid, kThreads, 0, s>>>(b);
  check_launch("expert_bias_grad");
}

}  // namespace mxt::kernels::MXT_GPU_NS
