// Generation: new keys and values go into the paged cache, new queries look over it. A block answers one query of one head. Its threads
// stand in groups of 16, a group takes eight keys at a time (group g the eights of number g, g + 16, …) with eight elements
// of them a thread, and the groups' results are merged in their order: which sum a key belongs to depends on its position alone.
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kGroup = 16, kGroups = kThreads / kGroup, kKeys = 8, kMostDim = 256;

struct CachedArgs {
  const void *q, *k, *v;
  void* out;
  int64_t ldq, ldo, requests, max_pages, page, window;
  const int32_t *cu_q, *context, *tables;
  int heads, kv_heads, d;
  float scale;
};

// Elements at+0 … at+7 of which `count` are there; kWide: all or none of them, and aligned.
template <typename T, bool kWide>
__device__ __forceinline__ void read8(const void* base, int64_t at, int count, float (&f)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) f[i] = 0;
  if constexpr (kWide && sizeof(T) == 2) {
    if (count > 0) load<T, 8>(base, at).unpack(f);
  } else if constexpr (kWide) {
    if (count > 0) {
      const float4 a = load<float, 4>(base, at).x, b = load<float, 4>(base, at + 4).x;
      f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w, f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < count) f[i] = to_float(static_cast<const T*>(base)[at + i]);
  }
}

// kParts · 128 elements a head at most.
template <typename T, bool kWide, int kParts>
__global__ void __launch_bounds__(kThreads) cached_kernel(CachedArgs a) {
  __shared__ float tops[kGroups], sums[kGroups], outs[kGroups][kParts * 128];
  next_may_start();
  previous_done();
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
  const int64_t t = blockIdx.x;
  const int h = blockIdx.y, kvh = h / (a.heads / a.kv_heads);
  // As many queries as requests: one each.
  const bool single = a.requests == gridDim.x;
  const int64_t r = single ? t : document_of(a.cu_q, a.requests, t);
  const int64_t last = single ? a.context[r] - 1 : a.context[r] - (a.cu_q[r + 1] - a.cu_q[r]) + (t - a.cu_q[r]);
  const int64_t begin = a.window > 0 && last - a.window + 1 > 0 ? last - a.window + 1 : 0;
  const int32_t* pages = a.tables + r * a.max_pages;
  auto there = [&](int part) { return a.d - part * 128 - lane * 8; };
  float q[kParts][8], out[kParts][8] = {}, top = -INFINITY, sum = 0;
#pragma unroll
  for (int p = 0; p < kParts; ++p) read8<T, kWide>(a.q, t * a.ldq + static_cast<int64_t>(h) * a.d + p * 128 + lane * 8, there(p), q[p]);
  // All groups of a block go round equally often: the sums over lanes need every thread of a warp.
  for (int64_t first = begin / kKeys * kKeys; first <= last; first += kGroups * kKeys) {
    // A key belongs to the group of its number in steps of kKeys, wherever the window begins.
    const int64_t round = first / kKeys, mine = (round + (group - round % kGroups + kGroups) % kGroups) * kKeys;
    int64_t at[kKeys];
    float score[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int64_t s = mine + i;
      at[i] = s < begin || s > last ? -1 : ((pages[s / a.page] * static_cast<int64_t>(a.kv_heads) + kvh) * a.page + s % a.page) * a.d + lane * 8;
      score[i] = 0;
    }
    // Values are asked for beside the keys, where registers hold both.
    constexpr bool kAhead = kWide && sizeof(T) == 2 && kParts == 1;
    Raw<T, kAhead ? 8 : 1> ahead[kAhead ? kKeys : 1];
    if constexpr (kAhead) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) ahead[i] = at[i] >= 0 && there(0) > 0 ? load<T, 8>(a.v, at[i]) : Raw<T, 8>{};
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        float k[8];
        read8<T, kWide>(a.k, at[i] + p * 128, at[i] < 0 ? 0 : there(p), k);
#pragma unroll
        for (int j = 0; j < 8; ++j) score[i] += q[p][j] * k[j];
      }
    float m = top;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int mask = kGroup / 2; mask > 0; mask /= 2) score[i] += shuffle_xor(score[i], mask);
      score[i] = at[i] < 0 ? -INFINITY : score[i] * a.scale;
      m = fmaxf(m, score[i]);
    }
    const float keep = top == -INFINITY ? 0.0f : expf(top - m);
    top = m;
    sum *= keep;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      score[i] = score[i] == -INFINITY ? 0.0f : expf(score[i] - m);
      sum += score[i];
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int j = 0; j < 8; ++j) out[p][j] *= keep;
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        float v[8];
        if constexpr (kAhead) ahead[i].unpack(v);
        else read8<T, kWide>(a.v, at[i] + p * 128, at[i] < 0 ? 0 : there(p), v);
#pragma unroll
        for (int j = 0; j < 8; ++j) out[p][j] += score[i] * v[j];
      }
    }
  }
  if (lane == 0) tops[group] = top, sums[group] = sum;
#pragma unroll
  for (int p = 0; p < kParts; ++p)
#pragma unroll
    for (int j = 0; j < 8; ++j) outs[group][p * 128 + lane * 8 + j] = out[p][j];
  __syncthreads();
  float m = tops[0], all = 0;
#pragma unroll
  for (int g = 1; g < kGroups; ++g) m = fmaxf(m, tops[g]);
  float keep[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    keep[g] = tops[g] == -INFINITY ? 0.0f : expf(tops[g] - m);
    all += sums[g] * keep[g];
  }
  for (int i = threadIdx.x; i < a.d; i += kThreads) {
    float value = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) value += outs[g][i] * keep[g];
    static_cast<T*>(a.out)[t * a.ldo + static_cast<int64_t>(h) * a.d + i] = from_float<T>(value / all);
  }
}

// blockIdx.y: 0 keys, 1 values.
template <typename T>
__global__ void __launch_bounds__(128) store_cache_kernel(const T* k, const T* v, int64_t ldk, int64_t ldv, T* k_cache, T* v_cache, const int32_t* slots, int64_t page, int kv_heads, int head_dim) {
  next_may_start();
  previous_done();
  const int64_t slot = slots[blockIdx.x];
  if (slot < 0) return;
  const T* x = blockIdx.y == 0 ? k + blockIdx.x * ldk : v + blockIdx.x * ldv;
  T* cache = blockIdx.y == 0 ? k_cache : v_cache;
  for (int i = threadIdx.x; i < kv_heads * head_dim; i += blockDim.x) {
    const int h = i / head_dim, c = i % head_dim;
    cache[((slot / page * kv_heads + h) * page + slot % page) * head_dim + c] = x[i];
  }
}

template <typename T, bool kWide>
void launch(Stream s, dim3 grid, const CachedArgs& a) {
  if (a.d <= 128) launch_early(cached_kernel<T, kWide, 1>, grid, dim3(kThreads), s, a);
  else launch_early(cached_kernel<T, kWide, 2>, grid, dim3(kThreads), s, a);
}

}  // namespace

void cached_attention(Stream s, const CachedAttention& c) {
  if (c.q.rows == 0) return;
  require(c.head_dim <= kMostDim, "head_dim is at most 256");
  const CachedArgs a{c.q.p, c.k_cache, c.v_cache, c.out.p, c.q.ld, c.out.ld, c.requests, c.max_pages, c.page, c.window, c.cu_q, c.context, c.tables,
                     static_cast<int>(c.heads), static_cast<int>(c.kv_heads), static_cast<int>(c.head_dim), c.scale};
  const dim3 grid(static_cast<unsigned>(c.q.rows), static_cast<unsigned>(c.heads));
  const bool is_wide = c.head_dim % 8 == 0 && wide(c.q) && wide(c.k_cache) && wide(c.v_cache);
  if (c.q.type == DType::kBF16) is_wide ? launch<bf16, true>(s, grid, a) : launch<bf16, false>(s, grid, a);
  else is_wide ? launch<float, true>(s, grid, a) : launch<float, false>(s, grid, a);
  check_launch("cached_attention");
}

void store_cache(Stream s, const StoreCache& c) {
  if (c.k.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(c.k.rows), 2);
  const int kv = static_cast<int>(c.kv_heads), d = static_cast<int>(c.head_dim);
  auto store = [&]<typename T>(T*) {
    launch_early(store_cache_kernel<T>, grid, dim3(128), s, static_cast<const T*>(c.k.p), static_cast<const T*>(c.v.p), c.k.ld, c.v.ld, static_cast<T*>(c.k_cache), static_cast<T*>(c.v_cache), c.slots, c.page, kv, d);
  };
  if (c.k.type == DType::kBF16) store(static_cast<uint16_t*>(nullptr));
  else store(static_cast<float*>(nullptr));
  check_launch("store_cache");
}

}  // namespace mxt::kernels::MXT_GPU_NS
