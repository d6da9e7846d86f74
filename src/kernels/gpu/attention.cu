// Plain attention: one warp a query (or a key, backward), the sum over keys in one fixed order. It takes any head
// dimension up to 256 and either type; the fast kernels are measured and tested against it.
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/random.cuh"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kPerLane = 256 / kWarp;

struct PlainArgs {
  const void *q, *k, *v, *out, *dout;
  void *o, *dq, *dk, *dv;
  int64_t ldq, ldk, ldv, ldo, lddo, lddq, lddk, lddv;
  float *lse, *delta;
  const int32_t *cu, *prefix;
  int64_t documents, tokens, window;
  bool causal;
  int heads, kv_heads, d;
  float scale;
  AttentionDrop drop;
};

// Calls f with each key that query t sees, in the order of their positions.
template <typename F>
__device__ __forceinline__ void for_each_key(const PlainArgs& a, int64_t t, F f) {
  const Seen seen = seen_by(a.cu, a.prefix, a.documents, a.window, t);
  for (int64_t s = seen.prefix; s < seen.prefix_end; ++s) f(s);
  const int64_t end = a.causal ? t + 1 : a.cu[document_of(a.cu, a.documents, t) + 1];
  for (int64_t s = seen.first; s < end; ++s) f(s);
}

// The factor of a weight.
__device__ __forceinline__ float kept(const AttentionDrop& d, int head, int64_t t, int64_t s) {
  return d.threshold == 0 ? 1.0f : attention_keeps(d, head, t, s) ? d.scale : 0.0f;
}

template <typename T>
__device__ __forceinline__ void read(const void* base, int64_t at, int d, int lane, float (&x)[kPerLane]) {
#pragma unroll
  for (int j = 0; j < kPerLane; ++j)
    x[j] = lane + j * kWarp < d ? to_float(static_cast<const T*>(base)[at + lane + j * kWarp]) : 0.0f;
}
template <typename T>
__device__ __forceinline__ void write(void* base, int64_t at, int d, int lane, const float (&x)[kPerLane],
                                      float scale) {
#pragma unroll
  for (int j = 0; j < kPerLane; ++j)
    if (lane + j * kWarp < d) static_cast<T*>(base)[at + lane + j * kWarp] = from_float<T>(x[j] * scale);
}
__device__ __forceinline__ float dot(const float (&a)[kPerLane], const float (&b)[kPerLane]) {
  float s = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) s += a[j] * b[j];
  return warp_sum(s);
}

// Running softmax of one query over keys taken one at a time.
struct Running {
  float top = -INFINITY, sum = 0, out[kPerLane] = {};
  __device__ __forceinline__ void take(float score, const float (&v)[kPerLane], float factor = 1.0f) {
    const float m = fmaxf(top, score), keep = expf(top - m), p = expf(score - m);
    top = m;
    sum = sum * keep + p;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) out[j] = out[j] * keep + p * factor * v[j];
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) plain_forward(PlainArgs a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (job >= a.tokens * a.heads) return;
  const int64_t t = job / a.heads;
  const int h = static_cast<int>(job % a.heads), kvh = h / (a.heads / a.kv_heads);
  float q[kPerLane], x[kPerLane], v[kPerLane];
  read<T>(a.q, t * a.ldq + h * a.d, a.d, lane, q);
  Running r;
  for_each_key(a, t, [&](int64_t s) {
    read<T>(a.k, s * a.ldk + kvh * a.d, a.d, lane, x);
    read<T>(a.v, s * a.ldv + kvh * a.d, a.d, lane, v);
    r.take(dot(q, x) * a.scale, v, kept(a.drop, h, t, s));
  });
  write<T>(a.o, t * a.ldo + h * a.d, a.d, lane, r.out, 1.0f / r.sum);
  if (a.lse != nullptr && lane == 0) a.lse[h * a.tokens + t] = r.top + logf(r.sum);
}

// dq of one query, and Σ dout·out, which the other kernel reads.
template <typename T>
__global__ void __launch_bounds__(kThreads) plain_dq(PlainArgs a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (job >= a.tokens * a.heads) return;
  const int64_t t = job / a.heads;
  const int h = static_cast<int>(job % a.heads), kvh = h / (a.heads / a.kv_heads);
  float q[kPerLane], x[kPerLane], dout[kPerLane], dq[kPerLane] = {};
  read<T>(a.q, t * a.ldq + h * a.d, a.d, lane, q);
  read<T>(a.dout, t * a.lddo + h * a.d, a.d, lane, dout);
  read<T>(a.out, t * a.ldo + h * a.d, a.d, lane, x);
  const float delta = dot(dout, x), lse = a.lse[h * a.tokens + t];
  if (lane == 0) a.delta[h * a.tokens + t] = delta;
  for_each_key(a, t, [&](int64_t s) {
    read<T>(a.v, s * a.ldv + kvh * a.d, a.d, lane, x);
    const float dp = dot(dout, x) * kept(a.drop, h, t, s);
    read<T>(a.k, s * a.ldk + kvh * a.d, a.d, lane, x);
    const float ds = expf(dot(q, x) * a.scale - lse) * (dp - delta) * a.scale;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) dq[j] += ds * x[j];
  });
  write<T>(a.dq, t * a.lddq + h * a.d, a.d, lane, dq, 1.0f);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) plain_dkv(PlainArgs a) {
  const int lane = threadIdx.x % kWarp, group = a.heads / a.kv_heads;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (job >= a.tokens * a.kv_heads) return;
  const int64_t s = job / a.kv_heads;
  const int kvh = static_cast<int>(job % a.kv_heads);
  const int64_t document = document_of(a.cu, a.documents, s), first = a.causal ? s : a.cu[document];
  const int64_t end = end_with_followers(a.cu, a.prefix, a.documents, document);
  float k[kPerLane], v[kPerLane], q[kPerLane], dout[kPerLane], dk[kPerLane] = {}, dv[kPerLane] = {};
  read<T>(a.k, s * a.ldk + kvh * a.d, a.d, lane, k);
  read<T>(a.v, s * a.ldv + kvh * a.d, a.d, lane, v);
  for (int h = kvh * group; h < (kvh + 1) * group; ++h)
    for (int64_t t = first; t < end; ++t) {
      if (a.window > 0 && t >= s + a.window) {
        if (end == a.cu[document + 1]) break;
        if (!seen_by(a.cu, a.prefix, a.documents, a.window, t).at(s)) continue;
      }
      read<T>(a.q, t * a.ldq + h * a.d, a.d, lane, q);
      read<T>(a.dout, t * a.lddo + h * a.d, a.d, lane, dout);
      const float p = expf(dot(q, k) * a.scale - a.lse[h * a.tokens + t]);
      const float keep = kept(a.drop, h, t, s), ds = p * (dot(dout, v) * keep - a.delta[h * a.tokens + t]) * a.scale;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) dv[j] += p * keep * dout[j], dk[j] += ds * q[j];
    }
  write<T>(a.dk, s * a.lddk + kvh * a.d, a.d, lane, dk, 1.0f);
  write<T>(a.dv, s * a.lddv + kvh * a.d, a.d, lane, dv, 1.0f);
}

struct Factors {
  int64_t ld[6];
};
// list.count < 0: all documents in their order.
__global__ void tables_kernel(const int32_t* cu, int64_t documents, const __grid_constant__ DocumentList list,
                              int64_t batch, Factors f, int32_t* tables) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i > batch) return;
  const bool inside = i < (list.count < 0 ? documents : list.count);
  const int64_t n = batch + 1, d = !inside ? documents : list.count < 0 ? i : list.index[i], begin = cu[d];
  tables[i] = inside ? cu[d + 1] - cu[d] : 0;
  for (int r = 1; r < 6; ++r) tables[r * n + i] = static_cast<int32_t>(begin * f.ld[r]);
}

template <typename A>
PlainArgs arguments(const A& c) {
  PlainArgs a{};
  a.q = c.q.p, a.k = c.k.p, a.v = c.v.p;
  a.ldq = c.q.ld, a.ldk = c.k.ld, a.ldv = c.v.ld, a.ldo = c.out.ld;
  a.cu = c.cu_seqlens, a.prefix = c.prefix;
  a.documents = c.documents, a.tokens = c.q.rows, a.window = c.window;
  a.heads = static_cast<int>(c.heads), a.kv_heads = static_cast<int>(c.kv_heads), a.d = static_cast<int>(c.head_dim);
  a.scale = c.scale;
  a.drop = attention_drop(c);
  return a;
}

unsigned blocks_for(int64_t jobs) { return static_cast<unsigned>(ceil_div(jobs, kWarps)); }

}  // namespace

void plain_attention(Stream s, const Attention& c) {
  if (c.q.rows == 0) return;
  require(c.head_dim <= 256, "head_dim is at most 256");
  PlainArgs a = arguments(c);
  a.causal = c.causal;
  a.o = c.out.p;
  a.lse = c.lse;
  if (c.q.type == DType::kBF16)
    plain_forward<bf16><<<blocks_for(a.tokens * a.heads), kThreads, 0, s>>>(a);
  else
    plain_forward<float><<<blocks_for(a.tokens * a.heads), kThreads, 0, s>>>(a);
  check_launch("plain_attention");
}

size_t plain_attention_grad_scratch(const AttentionGrad& c) {
  return static_cast<size_t>(c.heads * c.q.rows) * sizeof(float);
}

void plain_attention_grad(Stream s, const AttentionGrad& c, void* scratch) {
  if (c.q.rows == 0) return;
  require(c.head_dim <= 256, "head_dim is at most 256");
  PlainArgs a = arguments(c);
  a.causal = c.causal;
  a.out = c.out.p, a.dout = c.dout.p, a.lddo = c.dout.ld;
  a.dq = c.dq.p, a.dk = c.dk.p, a.dv = c.dv.p;
  a.lddq = c.dq.ld, a.lddk = c.dk.ld, a.lddv = c.dv.ld;
  a.lse = const_cast<float*>(c.lse);
  a.delta = static_cast<float*>(scratch);
  const unsigned q_blocks = blocks_for(a.tokens * a.heads), kv_blocks = blocks_for(a.tokens * a.kv_heads);
  if (c.q.type == DType::kBF16) {
    plain_dq<bf16><<<q_blocks, kThreads, 0, s>>>(a);
    plain_dkv<bf16><<<kv_blocks, kThreads, 0, s>>>(a);
  } else {
    plain_dq<float><<<q_blocks, kThreads, 0, s>>>(a);
    plain_dkv<float><<<kv_blocks, kThreads, 0, s>>>(a);
  }
  check_launch("plain_attention_grad");
}

void packed_tables(Stream s, const int32_t* cu_seqlens, int64_t documents, const DocumentList* list, int64_t batch,
                   const int64_t (&lds)[6], int32_t* tables) {
  Factors f;
  for (int i = 0; i < 6; ++i) f.ld[i] = lds[i];
  tables_kernel<<<static_cast<unsigned>(ceil_div(batch + 1, 128)), 128, 0, s>>>(
      cu_seqlens, documents, list ? *list : DocumentList{}, batch, f, tables);
  check_launch("packed_tables");
}

}  // namespace mxt::kernels::MXT_GPU_NS
