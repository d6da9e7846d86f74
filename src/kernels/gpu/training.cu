// Cross-entropy in place, AdamW over many tensors in one launch, the gradient's norm and the clipping factor, all left
// on the device: a step needs no host synchronisation.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kAhead = 4;  // loads of a thread that are under way together

// One block a row. First pass: running maximum and sum of exponentials per thread; second pass rewrites the row, which
// the L2 still holds for the most part (a row of 150,000 bf16 is 300 KB).
template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(T* logits, int64_t ld, int64_t vocab, const int32_t* labels, const float* weights, float* nll,
                         float* entropy, bool gradient, float cap, bool softmax, uint8_t* q, int64_t ldq,
                         float* scales) {
  __shared__ float space[kRowThreads / 32];
  const int64_t row = blockIdx.x, packs = vocab / V;
  T* x = logits + row * ld;
  const int32_t label = labels[row];
  if (label == -100) {
    if (threadIdx.x == 0) nll[row] = 0;
    if (threadIdx.x == 0 && entropy != nullptr) entropy[row] = 0;
    if (gradient) {
      const float zero[V] = {};
      for (int64_t i = threadIdx.x; i < packs; i += kRowThreads)
        if (q != nullptr)
          store_e4m3<V>(q + row * ldq + i * V, zero, 1.0f);
        else
          store<T, V>(x, i * V, Raw<T, V>::pack(zero));
      if (q != nullptr && threadIdx.x == 0) scales[row] = 1.0f;
    }
    return;
  }
  const float inv_cap = cap > 0 ? 1.0f / cap : 0.0f;
  // Calls `with(i, values)` for each of this thread's packs, in order.
  const auto for_each_pack = [&](auto with) {
    Raw<T, V> ahead[kAhead];
    for (int64_t first = threadIdx.x; first < packs; first += kAhead * kRowThreads) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (first + j * kRowThreads < packs) ahead[j] = load<T, V>(x, (first + j * kRowThreads) * V);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (first + j * kRowThreads >= packs) break;
        float f[V];
        ahead[j].unpack(f);
        with((first + j * kRowThreads) * V, f);
      }
    }
  };
  float top = -INFINITY, sum = 0, others = -INFINITY;  // others: than the label's
  for_each_pack([&](int64_t i, float(&f)[V]) {
    float m = top;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (cap > 0) f[k] = cap * tanhf(f[k] * inv_cap);
      m = fmaxf(m, f[k]);
    }
    if (softmax) {
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (i + k != label) others = fmaxf(others, f[k]);
    }
    if (m == -INFINITY) return;
    sum *= __expf(top - m);
    top = m;
#pragma unroll
    for (int k = 0; k < V; ++k) sum += __expf(f[k] - m);
  });
  const float all = block_max(top, space);
  sum = block_sum(top == -INFINITY ? 0.0f : sum * __expf(top - all), space);
  const float lse = all + logf(sum);
  if (threadIdx.x == 0) {
    float z = to_float(x[label]);
    if (cap > 0) z = cap * tanhf(z * inv_cap);
    nll[row] = lse - z;
  }
  if (entropy != nullptr) {  // with d = z − lse: −Σ eᵈ·d
    float mean = 0;
    for_each_pack([&](int64_t, float(&f)[V]) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float d = fmaxf((cap > 0 ? cap * tanhf(f[k] * inv_cap) : f[k]) - lse, -1e4f);
        mean += __expf(d) * d;
      }
    });
    __syncthreads();
    mean = block_sum(mean, space);
    if (threadIdx.x == 0) entropy[row] = -mean;
  }
  if (!gradient) return;
  __syncthreads();
  if (softmax) {
    const float scale = row_scale(__expf(block_max(others, space) - lse)), inverse = 1.0f / scale;
    for_each_pack([&](int64_t i, float(&f)[V]) {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = i + k == label ? 0.0f : __expf(f[k] - lse);
      if (q != nullptr)
        store_e4m3<V>(q + row * ldq + i, f, inverse);
      else
        store<T, V>(x, i, Raw<T, V>::pack(f));
    });
    if (q != nullptr && threadIdx.x == 0) scales[row] = scale;
    return;
  }
  const float w = weights != nullptr ? weights[row] : 1.0f;
  for_each_pack([&](int64_t i, float(&f)[V]) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      float slope = 1.0f;
      if (cap > 0) {
        const float t = tanhf(f[k] * inv_cap);
        f[k] = cap * t;
        slope = 1.0f - t * t;
      }
      f[k] = w * (__expf(f[k] - lse) - (i + k == label ? 1.0f : 0.0f)) * slope;
    }
    store_streaming<T, V>(x, i, Raw<T, V>::pack(f));
  });
}

template <typename T, int V>
__global__ void __launch_bounds__(256)
    label_grad_kernel(T* dh, int64_t ld, int64_t cols, const void* w, int64_t ldw, const int32_t* labels,
                      const float* nll, const float* weights) {
  const int64_t row = blockIdx.x;
  const int32_t label = labels[row];
  const float weight = weights != nullptr ? weights[row] : 1.0f, share = expm1f(-nll[row]);
  for (int64_t i = threadIdx.x * V; i < cols; i += 256 * V) {
    float f[V] = {}, of_label[V];
    if (label != -100) {
      load<T, V>(dh, row * ld + i).unpack(f);
      load<T, V>(w, label * ldw + i).unpack(of_label);
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = weight * (f[k] + share * of_label[k]);
    }
    store<T, V>(dh, row * ld + i, Raw<T, V>::pack(f));
  }
}

__global__ void __launch_bounds__(256)
    adamw_kernel(const OptTensor* tensors, const float* rates, const Piece* pieces, AdamWScalars a) {
  const Piece piece = pieces[blockIdx.x];
  const OptTensor t = tensors[piece.tensor];
  const float lr = rates[2 * piece.tensor], decay = 1.0f - lr * rates[2 * piece.tensor + 1], rate = lr / a.correction1;
  const float scale = a.grad_scale * (a.device_grad_scale != nullptr ? *a.device_grad_scale : 1.0f);
  const int64_t first = piece.index * kPiece, last = first + kPiece < t.n ? first + kPiece : t.n;
  for (int64_t i = first + threadIdx.x; i < last; i += 256) {
    const float g = t.grad[i] * scale;
    const float m = a.beta1 * t.m[i] + a.one_minus_beta1 * g, v = a.beta2 * t.v[i] + a.one_minus_beta2 * g * g;
    t.m[i] = m;
    t.v[i] = v;
    const float p = t.master[i] * decay - rate * m / (sqrtf(v) / a.correction2 + a.eps);
    t.master[i] = p;
    if (t.copy != nullptr) t.copy[i] = from_float<bf16>(p).bits;
  }
}

__device__ __forceinline__ double block_sum_double(double v) {
  __shared__ double space[256];
  space[threadIdx.x] = v;
  __syncthreads();
  for (int m = 128; m > 0; m /= 2) {
    if (threadIdx.x < m) space[threadIdx.x] += space[threadIdx.x + m];
    __syncthreads();
  }
  return space[0];
}

__global__ void __launch_bounds__(256) square_pieces(const Span* spans, const Piece* pieces, double* partial) {
  const Piece piece = pieces[blockIdx.x];
  const Span s = spans[piece.tensor];
  const int64_t first = piece.index * kPiece, last = first + kPiece < s.n ? first + kPiece : s.n;
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += 256)
    sum += static_cast<double>(s.p[i]) * static_cast<double>(s.p[i]);
  sum = block_sum_double(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(256) add_pieces(const double* partial, int64_t count, double* out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += 256) sum += partial[i];
  sum = block_sum_double(sum);
  if (threadIdx.x == 0) *out = sum;
}

__global__ void clip_kernel(const double* squared, double max_norm, float* scale) {
  const double c = max_norm / (sqrt(*squared) + 1e-6);
  *scale = c < 1.0 ? static_cast<float>(c) : 1.0f;
}

}  // namespace

void cross_entropy(Stream s, const CrossEntropy& c) {
  if (c.logits.rows == 0) return;
  MXT_GPU_DISPATCH(c.logits.type, wide(ConstMat(c.logits)) && wide(c.held),
                   cross_entropy_kernel<T, V><<<static_cast<unsigned>(c.logits.rows), kRowThreads, 0, s>>>(
                       static_cast<T*>(c.logits.p), c.logits.ld, c.logits.cols, c.labels, c.weights, c.nll, c.entropy,
                       c.gradient, c.softcap, c.softmax, static_cast<uint8_t*>(c.held.q.p), c.held.q.ld, c.held.scale));
  check_launch("cross_entropy");
}

void label_grad(Stream s, const LabelGrad& g) {
  if (g.dh.rows == 0 || g.dh.cols == 0) return;
  MXT_GPU_DISPATCH(g.dh.type, wide(ConstMat(g.dh)) && wide(g.w),
                   label_grad_kernel<T, V><<<static_cast<unsigned>(g.dh.rows), 256, 0, s>>>(
                       static_cast<T*>(g.dh.p), g.dh.ld, g.dh.cols, g.w.p, g.w.ld, g.labels, g.nll, g.weights));
  check_launch("label_grad");
}

void adamw(Stream s, const OptTensor* tensors, const float* rates, const Piece* pieces, int64_t count,
           const AdamWScalars& a) {
  if (count == 0) return;
  adamw_kernel<<<static_cast<unsigned>(count), 256, 0, s>>>(tensors, rates, pieces, a);
  check_launch("adamw");
}

void squared_norm(Stream s, const Span* spans, const Piece* pieces, int64_t count, double* partial, double* out) {
  if (count > 0) square_pieces<<<static_cast<unsigned>(count), 256, 0, s>>>(spans, pieces, partial);
  add_pieces<<<1, 256, 0, s>>>(partial, count, out);
  check_launch("squared_norm");
}

void clip_scale(Stream s, const double* squared, double max_norm, float* scale) {
  clip_kernel<<<1, 1, 0, s>>>(squared, max_norm, scale);
  check_launch("clip_scale");
}

}  // namespace mxt::kernels::MXT_GPU_NS
