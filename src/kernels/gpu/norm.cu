// RMSNorm and LayerNorm with the residual addition before them, one block a row. A row's first kCached packs per thread
// stay in registers between the passes, so that each input is read from memory once.
#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kCached = 4;

struct NormArgs {
  const void *x, *r;
  void *h, *y;
  int64_t ldx, ldr, ldh, ldy, cols;
  Weights w, b;
  float *mean, *rstd;
  float eps;
  bool layer_norm;
  uint8_t* q;
  float* scale;
  int64_t ldq;
};

int threads_for(int64_t packs) {
  const int64_t t = ceil_div(ceil_div(packs, kCached), kWarp) * kWarp;
  return static_cast<int>(t < 512 ? t : 512);
}

template <typename T, int V>
__global__ void __launch_bounds__(512) norm_kernel(NormArgs a) {
  __shared__ float space[16];
  allow_next_grid();
  const int64_t row = row_of_block(), packs = a.cols / V, step = blockDim.x, tid = threadIdx.x;
  if (gridDim.x == 1)  // generation of one token: nothing else brings them into the cache in time
    for (int64_t i = tid; i < packs; i += step) a.w.prefetch_at(i * V), a.b.prefetch_at(i * V);
  wait_for_previous_grid();
  Raw<T, V> kept[kCached];
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) kept[j] = load_streaming<T, V>(a.x, row * a.ldx + (tid + j * step) * V);
  float sum = 0, squares = 0;
  auto gather = [&](const Raw<T, V>& p) {
    float f[V];
    p.unpack(f);
#pragma unroll
    for (int k = 0; k < V; ++k) sum += f[k], squares += f[k] * f[k];
  };
  auto with_residual = [&](const Raw<T, V>& x, int64_t i) {
    float f[V], g[V];
    x.unpack(f);
    load<T, V>(a.r, row * a.ldr + i * V).unpack(g);
#pragma unroll
    for (int k = 0; k < V; ++k) f[k] += g[k];
    const Raw<T, V> h = Raw<T, V>::pack(f);
    store<T, V>(a.h, row * a.ldh + i * V, h);
    return h;
  };
  if (a.r != nullptr) {
    Raw<T, V> other[kCached];
#pragma unroll
    for (int j = 0; j < kCached; ++j)
      if (tid + j * step < packs) other[j] = load_streaming<T, V>(a.r, row * a.ldr + (tid + j * step) * V);
#pragma unroll
    for (int j = 0; j < kCached; ++j)
      if (tid + j * step < packs) {
        float f[V], g[V];
        kept[j].unpack(f);
        other[j].unpack(g);
#pragma unroll
        for (int k = 0; k < V; ++k) f[k] += g[k];
        kept[j] = Raw<T, V>::pack(f);
        store_streaming<T, V>(a.h, row * a.ldh + (tid + j * step) * V, kept[j]);
      }
  }
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) gather(kept[j]);
  for (int64_t i = tid + kCached * step; i < packs; i += step) {
    const Raw<T, V> x = load<T, V>(a.x, row * a.ldx + i * V);
    gather(a.r != nullptr ? with_residual(x, i) : x);
  }
  // What the norm reads, for packs beyond the kept ones: each thread re-reads what it wrote itself.
  const void* source = a.r != nullptr ? a.h : a.x;
  const int64_t lds = a.r != nullptr ? a.ldh : a.ldx;

  const float inv = 1.0f / static_cast<float>(a.cols);
  float mean = 0;
  if (a.layer_norm) {
    mean = block_sum(sum, space) * inv;
    squares = 0;
    auto deviate = [&](const Raw<T, V>& p) {
      float f[V];
      p.unpack(f);
#pragma unroll
      for (int k = 0; k < V; ++k) squares += (f[k] - mean) * (f[k] - mean);
    };
#pragma unroll
    for (int j = 0; j < kCached; ++j)
      if (tid + j * step < packs) deviate(kept[j]);
    for (int64_t i = tid + kCached * step; i < packs; i += step) deviate(load<T, V>(source, row * lds + i * V));
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares, space) * inv + a.eps);
  auto emit = [&](const Raw<T, V>& p, int64_t i) {
    float f[V], w[V], b[V];
    p.unpack(f);
    a.w.get<V>(i * V, w, 1.0f);
    a.b.get<V>(i * V, b, 0.0f);
#pragma unroll
    for (int k = 0; k < V; ++k) f[k] = (f[k] - mean) * rstd * w[k] + b[k];
    const Raw<T, V> y = Raw<T, V>::pack(f);
    if (a.y != nullptr) store<T, V>(a.y, row * a.ldy + i * V, y);
    return y;
  };
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) kept[j] = emit(kept[j], tid + j * step);
  for (int64_t i = tid + kCached * step; i < packs; i += step) emit(load<T, V>(source, row * lds + i * V), i);
  if (a.q != nullptr)
    hold_row<T, V>(kept, a.y, row * a.ldy, packs, Channels{nullptr}, a.q + row * a.ldq, a.scale + row, space);
  if (tid == 0) {
    if (a.mean != nullptr && a.layer_norm) a.mean[row] = mean;
    if (a.rstd != nullptr) a.rstd[row] = rstd;
  }
}

struct NormGradArgs {
  const void *x, *dy, *dres;
  void* dx;
  int64_t ldx, lddy, lddres, lddx, cols, rows;
  Weights w;
  const float *mean, *rstd;
  bool layer_norm;
  uint8_t* q;
  float* scale;
  const float* channel;
  int64_t ldq;
};

// dx = rstd·(g − (Σg + x̂·Σgx̂)/cols) + dres with g = dy·w, x̂ = (x − mean)·rstd; Σg only in LayerNorm.
template <typename T, int V>
__global__ void __launch_bounds__(512) norm_grad_kernel(NormGradArgs a) {
  allow_next_grid();
  wait_for_previous_grid();
  __shared__ float space[16];
  const int64_t row = row_of_block(), packs = a.cols / V, step = blockDim.x, tid = threadIdx.x;
  const float rstd = a.rstd[row], mean = a.layer_norm ? a.mean[row] : 0.0f;
  Raw<T, V> xs[kCached], dys[kCached], res[kCached];
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) {
      xs[j] = load_streaming<T, V>(a.x, row * a.ldx + (tid + j * step) * V);
      dys[j] = load_streaming<T, V>(a.dy, row * a.lddy + (tid + j * step) * V);
    }
  if (a.dres != nullptr) {
#pragma unroll
    for (int j = 0; j < kCached; ++j)
      if (tid + j * step < packs) res[j] = load_streaming<T, V>(a.dres, row * a.lddres + (tid + j * step) * V);
  }
  float sum_g = 0, sum_gx = 0;
  auto gather = [&](const Raw<T, V>& px, const Raw<T, V>& pdy, int64_t i) {
    float x[V], dy[V], w[V];
    px.unpack(x);
    pdy.unpack(dy);
    a.w.get<V>(i * V, w, 1.0f);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float g = dy[k] * w[k];
      sum_g += g;
      sum_gx += g * (x[k] - mean) * rstd;
    }
  };
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) gather(xs[j], dys[j], tid + j * step);
  for (int64_t i = tid + kCached * step; i < packs; i += step)
    gather(load<T, V>(a.x, row * a.ldx + i * V), load<T, V>(a.dy, row * a.lddy + i * V), i);
  const float inv = 1.0f / static_cast<float>(a.cols);
  sum_gx = block_sum(sum_gx, space) * inv;
  sum_g = a.layer_norm ? block_sum(sum_g, space) * inv : 0.0f;
  auto emit = [&](const Raw<T, V>& px, const Raw<T, V>& pdy, const Raw<T, V>& pres, int64_t i) {
    float x[V], dy[V], w[V], r[V];
    px.unpack(x);
    pdy.unpack(dy);
    a.w.get<V>(i * V, w, 1.0f);
    if (a.dres != nullptr) pres.unpack(r);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float xhat = (x[k] - mean) * rstd;
      x[k] = rstd * (dy[k] * w[k] - (sum_g + xhat * sum_gx)) + (a.dres != nullptr ? r[k] : 0.0f);
    }
    const Raw<T, V> dx = Raw<T, V>::pack(x);
    store<T, V>(a.dx, row * a.lddx + i * V, dx);
    return dx;
  };
#pragma unroll
  for (int j = 0; j < kCached; ++j)
    if (tid + j * step < packs) xs[j] = emit(xs[j], dys[j], res[j], tid + j * step);
  for (int64_t i = tid + kCached * step; i < packs; i += step) {
    const Raw<T, V> x = load<T, V>(a.x, row * a.ldx + i * V), dy = load<T, V>(a.dy, row * a.lddy + i * V);
    emit(x, dy, a.dres != nullptr ? load<T, V>(a.dres, row * a.lddres + i * V) : x, i);
  }
  if (a.q != nullptr)
    hold_row<T, V>(xs, a.dx, row * a.lddx, packs, Channels{a.channel}, a.q + row * a.ldq, a.scale + row, space);
}

// Partial Σ_t dy·x̂ (first `cols` of a partial row) and Σ_t dy (second) over one chunk of rows: 32 packs wide, 8 rows
// deep.
template <typename T, int V>
__global__ void __launch_bounds__(256) norm_columns(NormGradArgs a, int64_t rows_per_chunk, float* partial) {
  __shared__ float space[8][32 * V];
  const int lane = threadIdx.x % 32, deep = threadIdx.x / 32;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * V;
  const int64_t first = blockIdx.y * rows_per_chunk;
  const int64_t last = first + rows_per_chunk < a.rows ? first + rows_per_chunk : a.rows;
  float dw[V] = {}, db[V] = {};
  if (col < a.cols)
    for (int64_t t = first + deep; t < last; t += 8) {
      float x[V], dy[V];
      load<T, V>(a.dy, t * a.lddy + col).unpack(dy);
      load<T, V>(a.x, t * a.ldx + col).unpack(x);
      const float rstd = a.rstd[t], mean = a.layer_norm ? a.mean[t] : 0.0f;
#pragma unroll
      for (int k = 0; k < V; ++k) dw[k] += dy[k] * (x[k] - mean) * rstd, db[k] += dy[k];
    }
  float* out = partial + blockIdx.y * 2 * a.cols;
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < V; ++k) space[deep][lane * V + k] = which == 0 ? dw[k] : db[k];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * V; i += 256) {
      const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 * V + i;
      if (c >= a.cols) continue;
      float sum = 0;
      for (int d = 0; d < 8; ++d) sum += space[d][i];
      out[which * a.cols + c] = sum;
    }
  }
}

Weights weights(const void* p, DType t) { return {p, t == DType::kBF16}; }

}  // namespace

void norm(Stream s, const Norm& n) {
  if (n.x.rows == 0) return;
  NormArgs a{n.x.p,
             n.r.p,
             n.h.p,
             n.y.p,
             n.x.ld,
             n.r.ld,
             n.h.ld,
             n.y.ld,
             n.x.cols,
             weights(n.w, n.wtype),
             weights(n.b, n.wtype),
             n.mean,
             n.rstd,
             n.eps,
             n.layer_norm,
             static_cast<uint8_t*>(n.held.q.p),
             n.held.scale,
             n.held.q.ld};
  const bool is_wide =
      wide(n.x) && wide(n.r) && wide(ConstMat(n.h)) && wide(ConstMat(n.y)) && wide(n.w) && wide(n.b) && wide(n.held);
  // What a thread does not keep of its row it reads back from y.
  MXT_GPU_DISPATCH(n.x.type, is_wide,
                   if (!n.keep_y && n.x.cols / V <= kCached * threads_for(n.x.cols / V)) a.y = nullptr;
                   launch_dependent(norm_kernel<T, V>, dim3(static_cast<unsigned>(n.x.rows)),
                                    dim3(static_cast<unsigned>(threads_for(n.x.cols / V))), 0, s, a));
  check_launch("norm");
}

size_t norm_grad_scratch(const NormGrad& n) {
  return n.dw || n.db ? static_cast<size_t>(chunk_count(n.x.rows) * 2 * n.x.cols) * sizeof(float) : 0;
}

void norm_grad(Stream s, const NormGrad& n, void* scratch) {
  if (n.x.rows > 0) {
    const NormGradArgs a{n.x.p,
                         n.dy.p,
                         n.dres.p,
                         n.dx.p,
                         n.x.ld,
                         n.dy.ld,
                         n.dres.ld,
                         n.dx.ld,
                         n.x.cols,
                         n.x.rows,
                         weights(n.w, n.wtype),
                         n.mean,
                         n.rstd,
                         n.layer_norm,
                         static_cast<uint8_t*>(n.held.q.p),
                         n.held.scale,
                         n.held.channel,
                         n.held.q.ld};
    const bool is_wide = wide(n.x) && wide(n.dy) && wide(n.dres) && wide(ConstMat(n.dx)) && wide(n.w) && wide(n.held);
    // Columns first: dx may be dres's buffer, never x's or dy's.
    if (n.dw || n.db) {
      MXT_GPU_DISPATCH(
          n.x.type, is_wide,
          norm_columns<T, V>
          <<<dim3(static_cast<unsigned>(ceil_div(n.x.cols, 32 * V)), static_cast<unsigned>(chunk_count(n.x.rows))), 256,
             0, s>>>(a, chunk_rows(n.x.rows), static_cast<float*>(scratch)));
      check_launch("norm_columns");
    }
    MXT_GPU_DISPATCH(n.x.type, is_wide,
                     launch_dependent(norm_grad_kernel<T, V>, dim3(static_cast<unsigned>(n.x.rows)),
                                      dim3(threads_for(n.x.cols / V)), 0, s, a));
    check_launch("norm_grad");
  }
  const int64_t chunks = n.x.rows > 0 ? chunk_count(n.x.rows) : 0;
  add_chunks(s, static_cast<const float*>(scratch), chunks, 2 * n.x.cols, n.x.cols, n.dw, n.accumulate);
  add_chunks(s, static_cast<const float*>(scratch) + n.x.cols, chunks, 2 * n.x.cols, n.x.cols, n.db, n.accumulate);
}

}  // namespace mxt::kernels::MXT_GPU_NS
