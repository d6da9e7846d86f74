// Variants of adapters (kernels/adapters.h): DoRA's lengths and scales, noise on embeddings.
#include "kernels/adapters.h"

#include "kernels/gpu/columns.cuh"
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/random.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;

// A warp a row.
struct GainArgs {
  const void *w, *p, *q, *b;
  int64_t ldw, ldp, ldq, ldb, rows, width, rank;
  const float* m;
  float *gain, *norm;
  float scale;
  bool half;
};
__global__ void __launch_bounds__(kThreads) gain_kernel(const GainArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (i >= a.rows) return;
  float squared = 0;
  for (int64_t k = lane; k < a.width; k += kWarp) {
    const float w = get(a.w, a.half, i * a.ldw + k);
    squared += w * w;
  }
  for (int64_t r = lane; r < a.rank; r += kWarp) {
    float row = 2 * get(a.p, a.half, i * a.ldp + r);
    for (int64_t c = 0; c < a.rank; ++c)
      row += a.scale * get(a.q, a.half, r * a.ldq + c) * get(a.b, a.half, i * a.ldb + c);
    squared += a.scale * get(a.b, a.half, i * a.ldb + r) * row;
  }
  squared = warp_sum(squared);
  if (lane != 0) return;
  const float norm = sqrtf(squared);
  a.norm[i] = norm;
  a.gain[i] = a.m[i] / norm;
}

__global__ void ones_kernel(float* gain, float* norm, int64_t rows) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows) gain[i] = norm[i] = 1;
}

struct ScaleArgs {
  const void *x, *u, *bias;
  void* y;
  int64_t ldx, ldu, ldy, rows, cols, chunk;
  const float *gain, *norm;
  float* partial;  // [chunks, cols]: Σ x∘u/norm of a chunk's rows; null: not wanted
  bool half, half_bias;
};
// y = gain∘x + bias, a thread a column of a chunk of rows.
__global__ void __launch_bounds__(kThreads) scale_kernel(const ScaleArgs a) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= a.cols) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * a.chunk,
                last = first + a.chunk < a.rows ? first + a.chunk : a.rows;
  const float gain = a.gain[c], bias = a.bias != nullptr ? get(a.bias, a.half_bias, c) : 0.0f;
  float sum = 0;
  for (int64_t t = first; t < last; ++t) {
    const float x = get(a.x, a.half, t * a.ldx + c);
    if (a.partial != nullptr) sum += x * get(a.u, a.half, t * a.ldu + c);
    put(a.y, a.half, t * a.ldy + c, gain * x + bias);
  }
  if (a.partial != nullptr) a.partial[static_cast<int64_t>(blockIdx.y) * a.cols + c] = sum / a.norm[c];
}
void scale_columns(Stream s, ScaleArgs a) {
  if (a.rows == 0 || a.cols == 0) return;
  a.chunk = chunk_rows(a.rows);
  const dim3 grid(static_cast<unsigned>(ceil_div(a.cols, kThreads)), static_cast<unsigned>(chunk_count(a.rows)));
  scale_kernel<<<grid, kThreads, 0, s>>>(a);
  check_launch("dora_scale");
}

struct NoiseArgs {
  const void* x;
  void* y;
  int64_t ldx, ldy, rows, cols, documents, before;  // elements before the first row's
  const int32_t* cu;
  float alpha;
  uint64_t seed, stream;
  bool half;
};
// The four elements of one draw a thread.
__global__ void __launch_bounds__(kThreads) noise_kernel(const NoiseArgs a) {
  const int64_t place = a.before / 4 + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                first = place * 4 - a.before;
  if (first >= a.rows * a.cols) return;
  const uint4 d = philox(a.seed, a.stream, static_cast<uint64_t>(place));
  const uint32_t draw[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t e = first + k;
    if (e < 0) continue;
    if (e >= a.rows * a.cols) return;
    const int64_t row = e / a.cols, col = e % a.cols, document = document_of(a.cu, a.documents, row),
                  length = a.cu[document + 1] - a.cu[document];
    const float most = a.alpha / sqrtf(static_cast<float>(length * a.cols)),
                noise = static_cast<float>(2 * (draw[k] >> 9) + 1) * 0x1p-23f - 1.0f;  // noise_of()
    put(a.y, a.half, row * a.ldy + col, get(a.x, a.half, row * a.ldx + col) + most * noise);
  }
}

}  // namespace

void dora_gain(Stream s, const DoraGain& d) {
  if (d.rows == 0) return;
  if (d.w.p == nullptr) {
    ones_kernel<<<static_cast<unsigned>(ceil_div(d.rows, kThreads)), kThreads, 0, s>>>(d.gain, d.norm, d.rows);
  } else {
    const GainArgs a{d.w.p,  d.p.p,    d.q.p,    d.b.p, d.w.ld, d.p.ld, d.q.ld,  d.b.ld,
                     d.rows, d.w.cols, d.q.cols, d.m,   d.gain, d.norm, d.scale, d.w.type == DType::kBF16};
    gain_kernel<<<static_cast<unsigned>(ceil_div(d.rows, kWarps)), kThreads, 0, s>>>(a);
  }
  check_launch("dora_gain");
}

void dora_scale(Stream s, const DoraScale& d) {
  ScaleArgs a{};
  a.x = d.u.p, a.ldx = d.u.ld, a.y = d.y.p, a.ldy = d.y.ld, a.rows = d.u.rows, a.cols = d.u.cols;
  a.gain = d.gain, a.bias = d.bias, a.half_bias = d.bias_type == DType::kBF16;
  a.half = d.u.type == DType::kBF16;
  scale_columns(s, a);
}

size_t dora_scale_grad_scratch(const DoraScaleGrad& d) {
  return d.dm == nullptr ? 0 : static_cast<size_t>(chunk_count(d.u.rows) * d.u.cols) * sizeof(float);
}

void dora_scale_grad(Stream s, const DoraScaleGrad& d, void* scratch) {
  ScaleArgs a{};
  a.x = d.dy.p, a.ldx = d.dy.ld, a.u = d.u.p, a.ldu = d.u.ld, a.y = d.du.p, a.ldy = d.du.ld;
  a.rows = d.u.rows, a.cols = d.u.cols, a.gain = d.gain, a.norm = d.norm;
  a.half = d.u.type == DType::kBF16;
  a.partial = d.dm == nullptr ? nullptr : static_cast<float*>(scratch);
  scale_columns(s, a);
  const int64_t chunks = d.u.rows > 0 ? chunk_count(d.u.rows) : 0;
  add_chunks(s, a.partial, chunks, d.u.cols, d.u.cols, d.dm, d.accumulate);
}

void embedding_noise(Stream s, const EmbeddingNoise& e) {
  const int64_t n = e.x.rows * e.x.cols;
  if (n == 0) return;
  NoiseArgs a{};
  a.x = e.x.p, a.ldx = e.x.ld, a.y = e.y.p, a.ldy = e.y.ld, a.rows = e.x.rows, a.cols = e.x.cols;
  a.cu = e.cu_seqlens, a.documents = e.documents, a.before = e.first_row * e.x.cols;
  a.alpha = e.alpha, a.seed = e.seed, a.stream = e.stream;
  a.half = e.x.type == DType::kBF16;
  noise_kernel<<<static_cast<unsigned>(ceil_div(n + a.before % 4, 4 * kThreads)), kThreads, 0, s>>>(a);
  check_launch("embedding_noise");
}

}  // namespace mxt::kernels::MXT_GPU_NS
