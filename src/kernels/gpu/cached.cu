// Generation: new keys and values go into the paged cache, new queries look over it. A block answers one query of one
// head, or of several heads that share keys. Its threads stand in groups of 16, a group takes eight keys at a time
// (group g the eights of number g, g + 16, …) with eight elements of them a thread; the groups' results are merged in
// their order, once every kChunk keys, and the chunks' in theirs: which sum a key belongs to depends on its position
// alone, not on who computes it. Where queries are few, chunks are shared among blocks and the last block to finish
// merges them.
#include "kernels/gpu/cached.cuh"
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace mxt::kernels::MXT_GPU_NS {
namespace {

constexpr int kThreads = 256, kGroup = 16, kGroups = kThreads / kGroup, kKeys = 8, kRound = kGroups * kKeys,
              kChunk = 4 * kRound, kMostDim = kThreads;

// What the lane of this number within the group of 16 has.
__device__ __forceinline__ float from_lane(float v, int lane) {
#if defined(__HIP__)
  return __shfl(v, lane, kGroup);
#else
  return __shfl_sync(0xffffffffu, v, lane, kGroup);
#endif
}

// Sums over the group of each of kCount numbers (8 or 16): lane l gets that of number l·kCount/16. `v` is used up.
// A step a template: a loop over a halving bound is not always unrolled, and v then lies in memory.
template <int kCount, int kMask = kGroup / 2>
__device__ __forceinline__ float sum_across(float* v, int lane) {
  if constexpr (kCount == 1) {
    static_assert(kMask <= 1);
    return kMask == 1 ? v[0] + shuffle_xor(v[0], 1) : v[0];
  } else {
    const bool upper = lane & kMask;
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const float keep = upper ? v[j + kCount / 2] : v[j], send = upper ? v[j] : v[j + kCount / 2];
      v[j] = keep + shuffle_xor(send, kMask);
    }
    return sum_across<kCount / 2, kMask / 2>(v, lane);
  }
}

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

// kParts · 128 elements a head at most; kHeads heads a block. kWide: a page holds whole eights of keys.
// Two blocks a multiprocessor: what one waits for the other fills.
template <typename T, bool kWide, int kParts, int kHeads>
__global__ void __launch_bounds__(kThreads, kParts == 1 && kHeads <= 2 ? 2 : 1) cached_kernel(CachedArgs a) {
  __shared__ float tops[kHeads][kGroups], sums[kHeads][kGroups], keeps[kHeads][kGroups],
      outs[kHeads][kGroups][kParts * 128];
  __shared__ int before;
  allow_next_grid();
  const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup, tid = static_cast<int>(threadIdx.x);
  // Blocks that read the same keys stand side by side.
  const int64_t t = blockIdx.y;
  const int h0 = blockIdx.x * kHeads, kvh = h0 / (a.heads / a.kv_heads);
  // As many queries as requests: one each.
  const bool single = a.requests == gridDim.y;
  const int64_t r = single ? t : document_of(a.cu_q, a.requests, t);
  const int last =
      single ? a.context[r] - 1 : a.context[r] - (a.cu_q[r + 1] - a.cu_q[r]) + static_cast<int>(t - a.cu_q[r]);
  const int begin = a.window > 0 && last - a.window + 1 > 0 ? static_cast<int>(last - a.window + 1) : 0,
            page = static_cast<int>(a.page);
  const int32_t* pages = a.tables + r * a.max_pages;
  auto there = [&](int part) { return a.d - part * 128 - lane * 8; };
  // The first element of key s.
  auto key_at = [&](int s) {
    return ((pages[s / page] * static_cast<int64_t>(a.kv_heads) + kvh) * page + s % page) * a.d;
  };
  const int first_chunk = begin / kChunk, last_chunk = last / kChunk, share = static_cast<int>(gridDim.z);
  const int mine = first_chunk + (static_cast<int>(blockIdx.z) - first_chunk % share + share) %
                                     share;  // chunks of number z, z + share, …
  // Where blocks are few: no kernel writes the page tables, the requests' lengths or old keys: their way to the
  // second-level cache begins while the kernels before this one run.
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  if (kHeads == 1 && mine <= last_chunk && lane * kLine < a.d)
    for (int s = mine * kChunk + group; s <= last && s < (mine + 1) * kChunk; s += kGroups)
      if (s >= begin) {
        prefetch(static_cast<const T*>(a.k) + key_at(s) + lane * kLine);
        prefetch(static_cast<const T*>(a.v) + key_at(s) + lane * kLine);
      }
  wait_for_previous_grid();
  if (mine > last_chunk) return;
  float q[kHeads][kParts][8];
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      read8<T, kWide>(a.q, t * a.ldq + static_cast<int64_t>(h0 + h) * a.d + p * 128 + lane * 8, there(p), q[h][p]);
  Running<> running[kHeads];  // of element `tid`
  const bool shared = share > 1 && last_chunk > first_chunk;
  auto part = [&](int h, int chunk) {
    return a.parts + ((t * a.heads + h0 + h) * a.chunks + chunk) * (kScalars + a.d);
  };
  int computed = 0;
  for (int chunk = mine; chunk <= last_chunk; chunk += share, ++computed) {
    float out[kHeads][kParts][8] = {}, top[kHeads], sum[kHeads] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) top[h] = -INFINITY;
    // All groups of a block go round equally often: the sums over lanes need every thread of a warp.
    for (int first = max(chunk * kChunk, begin / kRound * kRound); first < (chunk + 1) * kChunk && first <= last;
         first += kRound) {
      const int s0 = first + group * kKeys;
      const int64_t base = kWide && s0 <= last && s0 + kKeys > begin ? key_at(s0) : int64_t{0};
      float score[kHeads][kKeys];
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
#pragma unroll
        for (int i = 0; i < kKeys; ++i) score[h][i] = 0;
      int64_t at[kKeys];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int s = s0 + i;
        at[i] = s < begin || s > last ? -1 : (kWide ? base + static_cast<int64_t>(i) * a.d : key_at(s)) + lane * 8;
      }
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          float k[8];
          read8<T, kWide>(a.k, at[i] + p * 128, at[i] < 0 ? 0 : there(p), k);
#pragma unroll
          for (int h = 0; h < kHeads; ++h)
#pragma unroll
            for (int j = 0; j < 8; ++j) score[h][i] = fmaf(q[h][p][j], k[j], score[h][i]);
        }
      // A lane ends with one score: the sums go the same way as if every lane had made all of them, with a quarter of
      // the exchanges, and each exponential is taken once.
      float mine = sum_across<kHeads * kKeys>(&score[0][0], lane);
      constexpr int kOf = kGroup / (kHeads * kKeys);  // lanes with the same one
      const int key = s0 + lane / kOf % kKeys;
      mine = key < begin || key > last ? -INFINITY : times(mine, a.scale);
      float largest = mine;
#pragma unroll
      for (int mask = kOf; mask < kOf * kKeys; mask *= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
      float m[kHeads];
#pragma unroll
      for (int h = 0; h < kHeads; ++h) m[h] = fmaxf(top[h], from_lane(largest, h * kKeys * kOf));
      const float own = kHeads == 1 || lane < kGroup / 2 ? m[0] : m[kHeads - 1];
      mine = mine == -INFINITY ? 0.0f : expf(mine - own);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float keep = top[h] == -INFINITY ? 0.0f : expf(top[h] - m[h]);
        top[h] = m[h];
        sum[h] = times(sum[h], keep);
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          score[h][i] = from_lane(mine, (h * kKeys + i) * kOf);
          sum[h] += score[h][i];
        }
#pragma unroll
        for (int p = 0; p < kParts; ++p)
#pragma unroll
          for (int j = 0; j < 8; ++j) out[h][p][j] = times(out[h][p][j], keep);
      }
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          float v[8];
          read8<T, kWide>(a.v, at[i] + p * 128, at[i] < 0 ? 0 : there(p), v);
#pragma unroll
          for (int h = 0; h < kHeads; ++h)
#pragma unroll
            for (int j = 0; j < 8; ++j) out[h][p][j] = fmaf(score[h][i], v[j], out[h][p][j]);
        }
    }
    if (computed > 0) __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (lane == 0) tops[h][group] = top[h], sums[h][group] = sum[h];
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int j = 0; j < 8; ++j) outs[h][group][p * 128 + lane * 8 + j] = out[h][p][j];
    }
    __syncthreads();
    auto largest_of = [&](int h) {
      float m = tops[h][0];
#pragma unroll
      for (int g = 1; g < kGroups; ++g) m = fmaxf(m, tops[h][g]);
      return m;
    };
    if (tid < kHeads * kGroups) {
      const int h = tid / kGroups, g = tid % kGroups;
      keeps[h][g] = tops[h][g] == -INFINITY ? 0.0f : expf(tops[h][g] - largest_of(h));
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float all = 0, value = 0;
      const float m = largest_of(h);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        all = fmaf(sums[h][g], keeps[h][g], all);
        if (tid < a.d) value = fmaf(outs[h][g][tid], keeps[h][g], value);
      }
      if (!shared) {
        running[h].add(m, all, {value});
        continue;
      }
      float* to = part(h, chunk);
      if (tid == 0) to[0] = m, to[1] = all;
      if (tid < a.d) to[kScalars + tid] = value;
    }
  }
  if (shared) {
    __threadfence();
    __syncthreads();
    int32_t* done = a.done + t * gridDim.x + blockIdx.x;
    if (tid == 0) {
      before = atomicAdd(done, computed);
      if (before + computed == last_chunk - first_chunk + 1) *done = 0;
    }
    __syncthreads();
    if (before + computed != last_chunk - first_chunk + 1) return;
    __threadfence();
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
        const float* from = part(h, chunk);
        running[h].add(read_shared_level(from), read_shared_level(from + 1),
                       {tid < a.d ? read_shared_level(from + kScalars + tid) : 0.0f});
      }
  }
  if (tid >= a.d) return;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (a.sinks != nullptr) running[h].add(a.sinks[h0 + h], 1.0f, {0.0f});
    static_cast<T*>(a.out)[t * a.ldo + static_cast<int64_t>(h0 + h) * a.d + tid] =
        from_float<T>(running[h].out[0] / running[h].sum);
  }
}

// blockIdx.y: 0 keys, 1 values.
template <typename T>
__global__ void __launch_bounds__(128)
    store_cache_kernel(const T* k, const T* v, int64_t ldk, int64_t ldv, T* k_cache, T* v_cache, const int32_t* slots,
                       int64_t page, int kv_heads, int head_dim) {
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t slot = slots[blockIdx.x];
  if (slot < 0) return;
  const T* x = blockIdx.y == 0 ? k + blockIdx.x * ldk : v + blockIdx.x * ldv;
  T* cache = blockIdx.y == 0 ? k_cache : v_cache;
  for (int i = threadIdx.x; i < kv_heads * head_dim; i += blockDim.x) {
    const int h = i / head_dim, c = i % head_dim;
    cache[((slot / page * kv_heads + h) * page + slot % page) * head_dim + c] = x[i];
  }
}

template <typename T>
void launch(Stream s, dim3 grid, int heads_a_block, bool is_wide, const CachedArgs& a) {
  grid.x = static_cast<unsigned>(a.heads / heads_a_block);
  const auto go = [&](auto kernel) { launch_dependent(kernel, grid, dim3(kThreads), 0, s, a); };
  if (a.d > 128)
    is_wide ? go(cached_kernel<T, true, 2, 1>) : go(cached_kernel<T, false, 2, 1>);
  else if (!is_wide)
    go(cached_kernel<T, false, 1, 1>);
  else if (heads_a_block == 2)
    go(cached_kernel<T, true, 1, 2>);
  else
    go(cached_kernel<T, true, 1, 1>);
}

int64_t chunks_of(const CachedAttention& c) { return ceil_div(c.max_pages * c.page, kChunk); }
// With fewer answers than this, blocks share their chunks; with more, heads share a block. As many blocks as
// multiprocessors, since the product after this one may begin to read its weights only when all of them have begun.
constexpr int64_t kBlocks = 128;
static_assert(kBlocks * sizeof(int32_t) <= kMostDone);
int64_t shares(const CachedAttention& c) {
  const int64_t room = kBlocks / (c.q.rows * c.heads), chunks = chunks_of(c);
  return room < 1 ? 1 : room < chunks ? room : chunks;
}
int heads_a_block(const CachedAttention& c, bool is_wide) {
  const int64_t group = c.heads / c.kv_heads, answers = c.q.rows * c.heads;
  return c.head_dim > 128 || !is_wide || answers <= kBlocks || group % 2 != 0 ? 1 : 2;
}

}  // namespace

CachedScratch cached_attention_scratch(const CachedAttention& c) {
  if (c.q.rows == 0 || shares(c) == 1) return {};
  return {static_cast<size_t>(c.q.rows * c.heads * chunks_of(c) * (2 + c.head_dim)) * sizeof(float),
          static_cast<size_t>(c.q.rows * c.heads) * sizeof(int32_t)};
}

void cached_attention(Stream s, const CachedAttention& c, void* parts, void* done, const float* sinks) {
  if (c.q.rows == 0) return;
  require(c.head_dim <= kMostDim, "head_dim is at most 256");
  const CachedArgs a = cached_args(c, parts, done, sinks, chunks_of(c));
  const dim3 grid(1, static_cast<unsigned>(c.q.rows), static_cast<unsigned>(shares(c)));
  const bool is_wide = c.head_dim % 8 == 0 && c.page % kKeys == 0 && wide(c.q) && wide(c.k_cache) && wide(c.v_cache);
  const int heads = heads_a_block(c, is_wide);
  if (c.q.type == DType::kBF16)
    launch<bf16>(s, grid, heads, is_wide, a);
  else
    launch<float>(s, grid, heads, is_wide, a);
  check_launch("cached_attention");
}

void store_cache(Stream s, const StoreCache& c) {
  if (c.k.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(c.k.rows), 2);
  const int kv = static_cast<int>(c.kv_heads), d = static_cast<int>(c.head_dim);
  auto store = [&]<typename T>(T*) {
    launch_dependent(store_cache_kernel<T>, grid, dim3(128), 0, s, static_cast<const T*>(c.k.p),
                     static_cast<const T*>(c.v.p), c.k.ld, c.v.ld, static_cast<T*>(c.k_cache),
                     static_cast<T*>(c.v_cache), c.slots, c.page, kv, d);
  };
  if (c.k.type == DType::kBF16)
    store(static_cast<uint16_t*>(nullptr));
  else
    store(static_cast<float*>(nullptr));
  check_launch("store_cache");
}

}  // namespace mxt::kernels::MXT_GPU_NS
