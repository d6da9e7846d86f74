// Generation on the matrix units. A block answers one query for up to eight heads that share keys, so that a key is
// read once for all of them. It takes rounds of keys: each of its warps a stretch of 64, in tiles of 16 that it copies
// into shared memory ahead of itself. Scores are made as keys × heads and results as elements × heads: a lane then has
// the same two heads throughout, and what scales a head's results lies in the lane that holds them. The stretches of a
// round are added in their order, and the rounds in theirs; where queries are few, rounds are shared among blocks and
// the last block to finish adds them: the same sums, the same bits.
#include "kernels/cuda/cached_tiles.h"

#include <algorithm>

#include "kernels/gpu/async_copy.cuh"
#include "kernels/gpu/cached.cuh"
#include "kernels/gpu/documents.cuh"
#include "kernels/gpu/mma.cuh"
#include "kernels/gpu/shared.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kTile = 16, kTiles = 4, kStretch = kTile * kTiles, kHeads = 8;  // kHeads: columns of a product

template <int kDim>
struct Layout {
  static constexpr int kWarps = kDim > 128 ? 2 : 4, kThreads = kWarps * kWarp, kRound = kWarps * kStretch,
                       kRow = (kDim + 63) / 64 * 128,  // bytes between keys; units of 16 are permuted by the row
      kStage = 2 * kTile * kRow,                       // of keys and values
      kStages = std::min(kTiles, 64 * 1024 / (kWarps * kStage)),
                       kLeading = kDim + 4,  // floats between heads: a warp's stores meet different banks
      kOfWarp = kHeads * (2 + kLeading),     // its results: tops, sums, elements
      kBytes = kWarps * (kStages * kStage + kOfWarp * static_cast<int>(sizeof(float))),
                       kEach = (kDim + kThreads - 1) / kThreads;  // elements of a head's result that a thread has
  static_assert(kStages >= 2);
};

__device__ __forceinline__ uint32_t pair(float low, float high) {
  return static_cast<uint32_t>(from_float<bf16>(low).bits) | static_cast<uint32_t>(from_float<bf16>(high).bits) << 16;
}

// One head's results so far, of the elements that a thread has.
template <int kDim>
struct Own : Running<Layout<kDim>::kEach> {
  // here(i, element), or absent(i) where the thread has fewer.
  template <typename Here, typename Absent>
  __device__ __forceinline__ static void each(Here&& here, Absent&& absent) {
    using L = Layout<kDim>;
#pragma unroll
    for (int i = 0; i < L::kEach; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * L::kThreads;
      if (kDim % L::kThreads == 0 || at < kDim)
        here(i, at);
      else
        absent(i);
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(Layout<kDim>::kThreads) cached_tiles_kernel(CachedArgs a) {
  using L = Layout<kDim>;
  constexpr int kWarps = L::kWarps, kSteps = kDim / 16, kUnits = kDim / 8;  // kUnits: of 16 bytes, a key
  extern __shared__ uint4 memory[];
  __shared__ int before;
  allow_next_grid();
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarp, lane = tid % kWarp;
  const int64_t t = blockIdx.y;
  const int group = a.heads / a.kv_heads, blocks_a_group = (group + kHeads - 1) / kHeads,
            kvh = static_cast<int>(blockIdx.x) / blocks_a_group,
            within = static_cast<int>(blockIdx.x) % blocks_a_group * kHeads, h0 = kvh * group + within,
            heads = min(kHeads, group - within);
  const bool single = a.requests == gridDim.y;  // as many queries as requests: one each
  const int64_t r = single ? t : document_of(a.cu_q, a.requests, t);
  const int last =
      single ? a.context[r] - 1 : a.context[r] - (a.cu_q[r + 1] - a.cu_q[r]) + static_cast<int>(t - a.cu_q[r]);
  const int begin = a.window > 0 && last - a.window + 1 > 0 ? static_cast<int>(last - a.window + 1) : 0;
  const int first_tile = begin / kTile, last_tile = last / kTile, first_round = begin / L::kRound,
            last_round = last / L::kRound, share = static_cast<int>(gridDim.z),
            mine = first_round + static_cast<int>(blockIdx.z), page = static_cast<int>(a.page),
            tiles_a_page = page / kTile;
  const bool shared = share > 1 && last_round > first_round;
  const int32_t* pages = a.tables + r * a.max_pages;
  const auto *keys = static_cast<const bf16*>(a.k), *values = static_cast<const bf16*>(a.v);
  // The first element of a tile that lies in page `in`.
  auto elements_of = [&](int32_t in, int tile) {
    return ((static_cast<int64_t>(in) * a.kv_heads + kvh) * page + tile % tiles_a_page * kTile) * kDim;
  };
  auto first_of = [&](int round) { return max((round * kWarps + warp) * kTiles, first_tile); };
  auto end_of = [&](int round) { return min((round * kWarps + warp + 1) * kTiles, last_tile + 1); };
  // No kernel writes the page tables, the requests' lengths or old keys: a block that has no round leaves its
  // multiprocessor to the kernel after this one at once, and where blocks are few the keys' way to the second-level
  // cache begins while the kernels before this one run.
  if (mine > last_round) return;
  if (share > 1)
    for (int tile = first_of(mine); tile < end_of(mine); ++tile) {
      const int64_t at = elements_of(pages[tile / tiles_a_page], tile);
      for (int line = lane; line < kTile * kDim / 64; line += kWarp)
        prefetch(keys + at + line * 64), prefetch(values + at + line * 64);
    }
  wait_for_previous_grid();

  // The queries, as the right operand of keys × heads.
  uint32_t q[kSteps][2];
  const bf16* asked = static_cast<const bf16*>(a.q) + t * a.ldq + static_cast<int64_t>(h0 + lane / 4) * kDim;
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      q[k][half] = lane / 4 < heads ? *reinterpret_cast<const uint32_t*>(asked + k * 16 + half * 8 + lane % 4 * 2) : 0;

  // The warp's tiles on their way: the next to be asked for, its round and page, and the stage that it goes to.
  const uint32_t stages = shared_address(memory) + static_cast<uint32_t>(warp * L::kStages * L::kStage);
  auto page_of = [&](int tile) { return tile <= last_tile ? pages[tile / tiles_a_page] : 0; };
  int next_round = mine, next = first_of(mine), next_stage = 0;
  int32_t next_page = page_of(next);
  auto fetch = [&] {
    // A stretch may lie before all that the query sees.
    while (next_round <= last_round && next >= end_of(next_round))
      next_round += share, next = first_of(next_round), next_page = page_of(next);
    if (next_round <= last_round) {
      const int64_t at = elements_of(next_page, next);
      const uint32_t to = stages + static_cast<uint32_t>(next_stage * L::kStage);
#pragma unroll
      for (int i = 0; i < kTile * kUnits / kWarp; ++i) {
        const int unit = i * kWarp + lane, row = unit / kUnits, key = next * kTile + row;
        const bool there = key >= begin && key <= last;
        const auto place = static_cast<uint32_t>(row * L::kRow + ((unit % kUnits ^ (row & 7)) << 4));
        copy_16(to + place, keys + at + unit * 8, there);
        copy_16(to + L::kStage / 2 + place, values + at + unit * 8, there);
      }
      next_page = page_of(++next);
    }
    next_stage = next_stage + 1 == L::kStages ? 0 : next_stage + 1;
    copies_end();
  };
#pragma unroll
  for (int i = 0; i < L::kStages - 1; ++i) fetch();

  // The row of four 8 × 8 matrices that a lane names. Keys: rows 0 to 7, 8 to 15, then the same of the next eight
  // elements; values, which are turned on their way: eight elements, the next eight, then the same of rows 8 to 15.
  const int key_row = lane % 16, key_unit = lane / 16, value_row = lane / 16 * 8 + lane % 8, value_unit = lane / 8 % 2;
  auto* results = reinterpret_cast<float*>(reinterpret_cast<char*>(memory) + kWarps * L::kStages * L::kStage);
  auto part = [&](int head, int round) {
    return a.parts + ((t * a.heads + h0 + head) * a.chunks + round) * (kScalars + kDim);
  };
  Own<kDim> running[kHeads];
  int stage = 0, computed = 0;
  for (int round = mine; round <= last_round; round += share, ++computed) {
    float out[kSteps][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int tile = first_of(round); tile < end_of(round); ++tile) {
      fetch();
      copies_wait<L::kStages - 1>();
      __syncwarp();
      const uint32_t k_tile = stages + static_cast<uint32_t>(stage * L::kStage), v_tile = k_tile + L::kStage / 2;
      float even[4] = {}, odd[4] = {};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t left[4];
        load_matrices(left,
                      k_tile + static_cast<uint32_t>(key_row * L::kRow + (((k * 2 + key_unit) ^ (key_row & 7)) << 4)));
        multiply_add(k % 2 == 0 ? even : odd, left, q[k][0], q[k][1]);
      }
      // Elements 0 and 1: the lane's heads and key lane/4; 2 and 3: key lane/4 + 8.
      float score[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = tile * kTile + lane / 4 + e / 2 * 8;
        score[e] = key < begin || key > last ? -INFINITY : times(even[e] + odd[e], a.scale);
      }
      float keep[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float m = fmaxf(top[h], fmaxf(score[h], score[2 + h]));
#pragma unroll
        for (int mask = 4; mask < kWarp; mask *= 2) m = fmaxf(m, shuffle_xor(m, mask));
        keep[h] = top[h] == -INFINITY ? 0.0f : expf(top[h] - m);
#pragma unroll
        for (int e = h; e < 4; e += 2) score[e] = score[e] == -INFINITY ? 0.0f : expf(score[e] - m);
        top[h] = m, sum[h] = times(sum[h], keep[h]) + (score[h] + score[2 + h]);
      }
      // Keys × heads becomes the right operand of elements × heads: pairs of keys, in the lanes of their head.
      const uint32_t weights[2] = {turned(pair(score[0], score[1])), turned(pair(score[2], score[3]))};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out[k][e] = times(out[k][e], keep[e % 2]);
        uint32_t left[4];
        load_transposed(left, v_tile + static_cast<uint32_t>(value_row * L::kRow +
                                                             (((k * 2 + value_unit) ^ (value_row & 7)) << 4)));
        multiply_add(out[k], left, weights[0], weights[1]);
      }
      __syncwarp();  // before the stage is asked for anew
      stage = stage + 1 == L::kStages ? 0 : stage + 1;
    }
    if (computed > 0) __syncthreads();  // the results of the round before have been read
    float* own = results + warp * L::kOfWarp;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = lane % 4 * 2 + h;
#pragma unroll
      for (int mask = 4; mask < kWarp; mask *= 2) sum[h] += shuffle_xor(sum[h], mask);
      if (lane < 4) own[head] = top[h], own[kHeads + head] = sum[h];
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          own[2 * kHeads + head * L::kLeading + k * 16 + half * 8 + lane / 4] = out[k][half * 2 + h];
    }
    __syncthreads();
    const int stretches = min(kWarps, last / kStretch - round * kWarps + 1);
    // Two heads at a time, whether the second is there or not, and every stretch: what one waits for another fills.
#pragma unroll
    for (int pair = 0; pair < kHeads; pair += 2) {
      if (pair >= heads) break;
#pragma unroll
      for (int head = pair; head < pair + 2; ++head) {
        Own<kDim> whole;
        float tops[kWarps];
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          tops[w] = w < stretches ? results[w * L::kOfWarp + head] : -INFINITY;
          whole.top = fmaxf(whole.top, tops[w]);
        }
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float* of = results + w * L::kOfWarp;
          const auto there = [&](int at) { return w < stretches ? of[at] : 0.0f; };
          const float weight = tops[w] == -INFINITY ? 0.0f : expf(tops[w] - whole.top);
          whole.sum = fmaf(there(kHeads + head), weight, whole.sum);
          whole.each(
              [&](int i, int at) {
                whole.out[i] = fmaf(there(2 * kHeads + head * L::kLeading + at), weight, whole.out[i]);
              },
              [](int) {});
        }
        if (!shared) {
          running[head].add(whole.top, whole.sum, whole.out);
        } else if (head < heads) {
          float* to = part(head, round);
          if (tid == 0) to[0] = whole.top, to[1] = whole.sum;
          whole.each([&](int i, int at) { to[kScalars + at] = whole.out[i]; }, [](int) {});
        }
      }
    }
  }
  if (shared) {
    __threadfence();
    __syncthreads();
    int32_t* done = a.done + t * gridDim.x + blockIdx.x;
    const int all = last_round - first_round + 1;
    if (tid == 0) {
      before = atomicAdd(done, computed);
      if (before + computed == all) *done = 0;
    }
    __syncthreads();
    if (before + computed != all) return;
    __threadfence();
    // All heads of some rounds are asked for at once: the second-level cache is far away.
    constexpr int kAhead = kDim > 128 ? 1 : 2;
    for (int round = first_round; round <= last_round; round += kAhead) {
      Own<kDim> found[kAhead][kHeads];
#pragma unroll
      for (int j = 0; j < kAhead; ++j)
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
          if (head >= heads || round + j > last_round) continue;
          const float* from = part(head, round + j);
          Own<kDim>& of = found[j][head];
          of.top = read_shared_level(from), of.sum = read_shared_level(from + 1);
          of.each([&](int i, int at) { of.out[i] = read_shared_level(from + kScalars + at); }, [](int) {});
        }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (round + j > last_round) break;
#pragma unroll
        for (int head = 0; head < kHeads; ++head)
          running[head].add(found[j][head].top, found[j][head].sum, found[j][head].out);
      }
    }
  }
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    if (head >= heads) break;
    Own<kDim>& of = running[head];
    if (a.sinks != nullptr) of.add(a.sinks[h0 + head], 1.0f, {});
    auto* out = static_cast<bf16*>(a.out) + t * a.ldo + static_cast<int64_t>(h0 + head) * kDim;
    of.each([&](int i, int at) { out[at] = from_float<bf16>(of.out[i] / of.sum); }, [](int) {});
  }
}

int round_of(int64_t head_dim) { return head_dim > 128 ? Layout<256>::kRound : Layout<128>::kRound; }
int64_t rounds_of(const CachedAttention& c) { return ceil_div(c.max_pages * c.page, round_of(c.head_dim)); }
int64_t blocks_a_query(const CachedAttention& c) { return c.kv_heads * ceil_div(c.heads / c.kv_heads, kHeads); }
// Blocks that share a query's rounds: about as many in all as there are multiprocessors.
int64_t shares(const CachedAttention& c) {
  constexpr int64_t kBlocks = 128;
  return std::clamp<int64_t>(kBlocks / (c.q.rows * blocks_a_query(c)), 1, rounds_of(c));
}

template <int kDim>
void launch(cudaStream_t s, dim3 grid, const CachedArgs& a) {
  allow_shared(cached_tiles_kernel<kDim>, Layout<kDim>::kBytes);
  launch_dependent(cached_tiles_kernel<kDim>, grid, dim3(Layout<kDim>::kThreads), Layout<kDim>::kBytes, s, a);
}

}  // namespace

bool cached_tiles_cover(const CachedAttention& c) {
  const int64_t d = c.head_dim;
  return c.q.type == DType::kBF16 && (d == 64 || d == 96 || d == 128 || d == 256) && c.page % kTile == 0 && wide(c.q) &&
         wide(c.k_cache) && wide(c.v_cache);
}

CachedScratch cached_tiles_scratch(const CachedAttention& c) {
  if (c.q.rows == 0 || shares(c) == 1) return {};
  return {static_cast<size_t>(c.q.rows * c.heads * rounds_of(c) * (kScalars + c.head_dim)) * sizeof(float),
          static_cast<size_t>(c.q.rows * blocks_a_query(c)) * sizeof(int32_t)};
}

void cached_tiles(cudaStream_t s, const CachedAttention& c, void* parts, void* done, const float* sinks) {
  if (c.q.rows == 0) return;
  const CachedArgs a = cached_args(c, parts, done, sinks, rounds_of(c));
  const dim3 grid(static_cast<unsigned>(blocks_a_query(c)), static_cast<unsigned>(c.q.rows),
                  static_cast<unsigned>(shares(c)));
  switch (c.head_dim) {
    case 64:
      launch<64>(s, grid, a);
      break;
    case 96:
      launch<96>(s, grid, a);
      break;
    case 128:
      launch<128>(s, grid, a);
      break;
    default:
      launch<256>(s, grid, a);
      break;
  }
  check_launch("cached_tiles");
}

}  // namespace mxt::kernels::cuda
