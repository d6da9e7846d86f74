// Cross-entropy in place, AdamW over many tensors in one launch, the gradient's norm and the clipping factor, all left
// on the device: a step needs no host synchronisation.
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kAhead = 4;  // packs of a thread, whose loads are under way together

// Within 2e-7: of a bounded logit, which an exponential is taken of, as good as tanhf, for a fifth of its instructions.
__device__ __forceinline__ float tanh_by_exp(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x)); }

struct CrossEntropyArgs {
  void* logits;
  int64_t ld, vocab;
  const int32_t* labels;
  const float* weights;
  float *nll, *entropy;
  bool gradient, softmax;
  float cap;
  uint8_t* q;
  int64_t ldq;
  float *scales, *at_label;
};

// One block a row: the running maximum and sum of exponentials per thread, then the gradient. kKept: a thread's packs
// of the row, kAhead at most, stay in registers; else each pass over the row reads it again, which the L2 still holds
// for the most part (a row of 150,000 bf16 is 300 KB).
template <typename T, int V, bool kKept>
__global__ void __launch_bounds__(kRowThreads) cross_entropy_kernel(CrossEntropyArgs a) {
  __shared__ float space[kRowThreads / 32];
  const int64_t row = blockIdx.x, packs = a.vocab / V;
  T* x = static_cast<T*>(a.logits) + row * a.ld;
  uint8_t* q = a.q == nullptr ? nullptr : a.q + row * a.ldq;
  const int32_t label = a.labels[row];
  if (label == -100) {
    if (threadIdx.x == 0) a.nll[row] = 0;
    if (threadIdx.x == 0 && a.entropy != nullptr) a.entropy[row] = 0;
    if (threadIdx.x == 0 && a.at_label != nullptr) a.at_label[row] = 0;
    if (a.gradient) {
      const float zero[V] = {};
      for (int64_t i = threadIdx.x; i < packs; i += kRowThreads)
        if (q != nullptr)
          store_e4m3<V>(q + i * V, zero, 1.0f);
        else
          store<T, V>(x, i * V, Raw<T, V>::pack(zero));
      if (q != nullptr && threadIdx.x == 0) a.scales[row] = 1.0f;
    }
    return;
  }
  const auto of_pack = [label](int64_t i) { return label - static_cast<int32_t>(i); };  // where the label stands in it
  const float inv_cap = a.cap > 0 ? 1.0f / a.cap : 0.0f;
  const auto capped = [&](const Raw<T, V>& pack, float(&f)[V]) {
    pack.unpack(f);
    if (a.cap > 0)
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = a.cap * tanh_by_exp(f[k] * inv_cap);
  };
  // `first`: of kAhead packs of this thread. Calls `with(j, i, pack)` for each that is there.
  const auto read = [&](int64_t first, auto with) {
    Raw<T, V> ahead[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (first + j * kRowThreads < packs) ahead[j] = load<T, V>(x, (first + j * kRowThreads) * V);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kRowThreads >= packs) break;
      with(j, (first + j * kRowThreads) * V, ahead[j]);
    }
  };
  [[maybe_unused]] float kept[kAhead][V];
  if constexpr (kKept) read(threadIdx.x, [&](int j, int64_t, const Raw<T, V>& pack) { capped(pack, kept[j]); });
  // Calls `with(i, logits)` for each of this thread's packs, in order; kept ones it may change.
  const auto for_each_pack = [&](auto with) {
    if constexpr (kKept) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
        if (const int64_t i = threadIdx.x + j * kRowThreads; i < packs) with(i * V, kept[j]);
    } else {
      for (int64_t first = threadIdx.x; first < packs; first += kAhead * kRowThreads)
        read(first, [&](int, int64_t i, const Raw<T, V>& pack) {
          float f[V];
          capped(pack, f);
          with(i, f);
        });
    }
  };
  float top = -INFINITY, sum = 0, others = -INFINITY;  // others: than the label's
  for_each_pack([&](int64_t i, const float(&f)[V]) {
    float m = top;
#pragma unroll
    for (int k = 0; k < V; ++k) m = fmaxf(m, f[k]);
    if (a.softmax) {
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (k != of_pack(i)) others = fmaxf(others, f[k]);
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
    const float z = to_float(x[label]);
    a.nll[row] = lse - (a.cap > 0 ? a.cap * tanh_by_exp(z * inv_cap) : z);
  }
  if (a.entropy != nullptr) {  // with d = z − lse: −Σ eᵈ·d
    float mean = 0;
    for_each_pack([&](int64_t, const float(&f)[V]) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float d = fmaxf(f[k] - lse, -1e4f);
        mean += __expf(d) * d;
      }
    });
    __syncthreads();
    mean = block_sum(mean, space);
    if (threadIdx.x == 0) a.entropy[row] = -mean;
  }
  if (!a.gradient) return;
  __syncthreads();
  const float w = a.weights != nullptr && !a.softmax ? a.weights[row] : 1.0f;
  const auto derive = [&](int64_t i, float(&f)[V]) {
    const int at = of_pack(i);
    if (a.softmax) {
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] = k == at ? 0.0f : __expf(f[k] - lse);
      return;
    }
    if (a.cap > 0) {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float t = f[k] * inv_cap;
        f[k] = w * (__expf(f[k] - lse) - (k == at ? 1.0f : 0.0f)) * (1.0f - t * t);
      }
      return;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) f[k] = w * (__expf(f[k] - lse) - (k == at ? 1.0f : 0.0f));
  };
  // By the one thread that has it.
  const auto leave_label = [&](int64_t i, float(&f)[V]) {
    const int at = of_pack(i);
    if (a.at_label == nullptr || at < 0 || at >= V) return;
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (k == at) a.at_label[row] = f[k], f[k] = 0;
  };
  if (q == nullptr) {
    for_each_pack([&](int64_t i, float(&f)[V]) {
      derive(i, f);
      store_streaming<T, V>(x, i, Raw<T, V>::pack(f));
    });
    return;
  }
  float largest = 0;
  if (a.softmax) {
    largest = __expf(block_max(others, space) - lse);
  } else {
    for_each_pack([&](int64_t i, float(&f)[V]) {
      derive(i, f);
      leave_label(i, f);
#pragma unroll
      for (int k = 0; k < V; ++k) largest = fmaxf(largest, fabsf(f[k]));
    });
    largest = block_max(largest, space);
  }
  const float scale = row_scale(largest), inverse = 1.0f / scale;
  for_each_pack([&](int64_t i, float(&f)[V]) {
    if (!kKept || a.softmax) derive(i, f);
    if (!kKept && !a.softmax) leave_label(i, f);
    store_e4m3<V>(q + i, f, inverse);
  });
  if (threadIdx.x == 0) a.scales[row] = scale;
}

template <typename T, int V>
__global__ void __launch_bounds__(256)
    label_grad_kernel(T* dh, int64_t ld, int64_t cols, const void* w, int64_t ldw, const int32_t* labels,
                      const float* nll, const float* weights, const float* at_label) {
  const int64_t row = blockIdx.x;
  const int32_t label = labels[row];
  const float weight = weights != nullptr && at_label == nullptr ? weights[row] : 1.0f,
              share = at_label != nullptr ? at_label[row] : expm1f(-nll[row]);
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
  const CrossEntropyArgs a{c.logits.p,
                           c.logits.ld,
                           c.logits.cols,
                           c.labels,
                           c.weights,
                           c.nll,
                           c.entropy,
                           c.gradient,
                           c.softmax,
                           c.softcap,
                           static_cast<uint8_t*>(c.held.q.p),
                           c.held.q.ld,
                           c.held.scale,
                           c.at_label};
  const auto rows = static_cast<unsigned>(c.logits.rows);
  MXT_GPU_DISPATCH(c.logits.type, wide(ConstMat(c.logits)) && wide(c.held), {
    const auto kernel = c.logits.cols <= int64_t{kAhead} * kRowThreads * V ? cross_entropy_kernel<T, V, true>
                                                                           : cross_entropy_kernel<T, V, false>;
    kernel<<<rows, kRowThreads, 0, s>>>(a);
  });
  check_launch("cross_entropy");
}

void label_grad(Stream s, const LabelGrad& g) {
  if (g.dh.rows == 0 || g.dh.cols == 0) return;
  MXT_GPU_DISPATCH(g.dh.type, wide(ConstMat(g.dh)) && wide(g.w),
                   label_grad_kernel<T, V>
                   <<<static_cast<unsigned>(g.dh.rows), 256, 0, s>>>(static_cast<T*>(g.dh.p), g.dh.ld, g.dh.cols, g.w.p,
                                                                     g.w.ld, g.labels, g.nll, g.weights, g.at_label));
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
