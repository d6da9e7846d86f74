// What the kernels of attention over a paged cache share (cached.cu, cuda/cached_tiles.cu).
#pragma once

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {

struct CachedArgs {
  const void *q, *k, *v;
  void* out;
  int64_t ldq, ldo, requests, max_pages, page, window;
  const int32_t *cu_q, *context, *tables;
  int heads, kv_heads, d;
  float scale;
  // Chunks shared among gridDim.z blocks: what each gave ([query][head][chunk]: top, sum, d elements) and how many are
  // done, 0 between calls.
  float* parts;
  int32_t* done;
  int chunks;
  const float* sinks;  // [heads], or none: a score whose weight is dropped (kernels/gpt_oss.h)
};
constexpr int64_t kScalars = 2;  // floats of a part before its elements

inline CachedArgs cached_args(const CachedAttention& c, void* parts, void* done, const float* sinks, int64_t chunks) {
  constexpr int64_t kMostRows = 65535;  // of a grid, upwards
  require(c.q.rows <= kMostRows, "more than 65,535 new tokens in a pass");
  return {c.q.p,
          c.k_cache,
          c.v_cache,
          c.out.p,
          c.q.ld,
          c.out.ld,
          c.requests,
          c.max_pages,
          c.page,
          c.window,
          c.cu_q,
          c.context,
          c.tables,
          static_cast<int>(c.heads),
          static_cast<int>(c.kv_heads),
          static_cast<int>(c.head_dim),
          c.scale,
          static_cast<float*>(parts),
          static_cast<int32_t*>(done),
          static_cast<int>(chunks),
          sinks};
}

// Rounded by itself: every variant of a kernel must give the same bits, so that none may leave it to the compiler
// which products ride in which additions.
__device__ __forceinline__ float times(float x, float y) { return __fmul_rn(x, y); }

// Results over keys so far, of one head: largest score, sum of weights, weighted sums of some elements. Chunks are
// added in their order.
template <int kElements = 1>
struct Running {
  float top = -INFINITY, sum = 0, out[kElements] = {};
  __device__ __forceinline__ void add(float t, float s, const float (&o)[kElements]) {
    const float m = fmaxf(top, t), a = top == -INFINITY ? 0.0f : expf(top - m), b = t == -INFINITY ? 0.0f : expf(t - m);
    top = m, sum = fmaf(s, b, times(sum, a));
#pragma unroll
    for (int i = 0; i < kElements; ++i) out[i] = fmaf(o[i], b, times(out[i], a));
  }
};

}  // namespace mxt::kernels::MXT_GPU_NS
