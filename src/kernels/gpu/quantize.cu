// Rows to E4M3 with a power of two a row, one block a row: read once, the packs stay in registers between the largest
// and the store.
#include "kernels/gpu/quantize.cuh"

#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

struct QuantizeArgs {
  const void* x;
  const float* channel;
  void* q;
  float* scale;
  int64_t ldx, ldq, cols;
};

// Held: the numbers themselves; else the values that they stand for, in T.
template <typename T, int V, bool Held>
__global__ void __launch_bounds__(kRowThreads) quantize_kernel(QuantizeArgs a) {
  allow_next_grid();
  wait_for_previous_grid();
  __shared__ float space[kRowThreads / 32];
  const int64_t row = row_of_block(), packs = a.cols / V, step = blockDim.x, tid = threadIdx.x;
  const Channels channels{a.channel};
  [[maybe_unused]] Raw<T, V> kept[kRowPacks];
#pragma unroll
  for (int j = 0; j < kRowPacks && Held; ++j)
    if (tid + j * step < packs) kept[j] = load<T, V>(a.x, row * a.ldx + (tid + j * step) * V);
  if constexpr (Held) {
    hold_row<T, V>(kept, a.x, row * a.ldx, packs, channels, static_cast<uint8_t*>(a.q) + row * a.ldq, a.scale + row,
                   space);
  } else {
    float largest = 0;
    auto look = [&](const Raw<T, V>& p, int64_t i) {
      float f[V];
      p.unpack(f);
      channels.apply<V>(i * V, f);
#pragma unroll
      for (int k = 0; k < V; ++k) largest = fmaxf(largest, fabsf(f[k]));
    };
    for (int64_t i = tid; i < packs; i += step) look(load<T, V>(a.x, row * a.ldx + i * V), i);
    const float scale = row_scale(block_max(largest, space)), inverse = 1.0f / scale;
    for (int64_t i = tid; i < packs; i += step) {
      float f[V], c[V];
      load<T, V>(a.x, row * a.ldx + i * V).unpack(f);
#pragma unroll
      for (int k = 0; k < V; ++k) c[k] = 1.0f;
      channels.apply<V>(i * V, c);
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = from_e4m3(to_e4m3(f[k] * c[k] * inverse)) * scale / c[k];
      store<T, V>(a.q, row * a.ldq + i * V, Raw<T, V>::pack(f));
    }
    if (tid == 0 && a.scale != nullptr) a.scale[row] = scale;
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads) row_largest_kernel(const void* x, int64_t ld, int64_t cols, float* out) {
  __shared__ float space[kRowThreads / 32];
  const int64_t first = blockIdx.x * ld + blockIdx.y * cols;
  float largest = 0;
  for (int64_t i = threadIdx.x; i < cols / V; i += blockDim.x) {
    float f[V];
    load<T, V>(x, first + i * V).unpack(f);
#pragma unroll
    for (int k = 0; k < V; ++k) largest = fmaxf(largest, fabsf(f[k]));
  }
  largest = block_max(largest, space);
  if (threadIdx.x == 0) out[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = largest;
}

}  // namespace

void row_largest(Stream s, const ConstMat& x, int parts, float* out) {
  if (x.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(parts));
  ConstMat part = x;
  part.cols /= parts;
  MXT_GPU_DISPATCH(x.type, wide(part),
                   row_largest_kernel<T, V><<<grid, row_threads(part.cols / V), 0, s>>>(x.p, x.ld, part.cols, out));
  check_launch("row_largest");
}

void quantize(Stream s, const Quantize& c) {
  if (c.x.rows == 0) return;
  const QuantizeArgs a{c.x.p, c.channel, c.q.p, c.scale, c.x.ld, c.q.ld, c.x.cols};
  const bool held = c.q.type == DType::kF8E4M3;
  const bool is_wide = wide(c.x) && wide(c.q.p) && wide(c.channel) && c.q.ld % 16 == 0;
  const auto rows = static_cast<unsigned>(c.x.rows);
  MXT_GPU_DISPATCH(c.x.type, is_wide,
                   launch_dependent(held ? quantize_kernel<T, V, true> : quantize_kernel<T, V, false>, dim3(rows),
                                    dim3(row_threads(c.x.cols / V)), 0, s, a));
  check_launch("quantize");
}

}  // namespace mxt::kernels::MXT_GPU_NS
