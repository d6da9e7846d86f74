// Backward of attention (Dao 2023, algorithm 2) in two passes over tiles of 64 queries × 64 keys. The first one owns
// keys: with sᵀ = k qᵀ and dpᵀ = v doutᵀ, transposed so that the weights are left operands in registers,
//   p = 2^(s·scale·log2 e − lse2), ds = p ∘ (dp − delta), dv += pᵀ dout, dk += dsᵀ q,
// over all queries of all heads that share the keys; it stores ds in bf16. The second one owns queries: dq += ds k. It
// costs 2 bytes a score each way, less than making the scores again, and no sum is shared between blocks.
//
// Documents that go on from another (Attention::prefix) stand behind it, so that the queries that see its keys are the
// tiles after its own: a block of its keys goes through them too, and one of their queries begins with its keys.
//
// With a window a tile of keys ends at the last tile of queries that sees one of them, `back` tiles on; pairs further
// apart are neither computed nor stored.
#include "kernels/cuda/attention_tiles.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_map.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kTile = 64, kBlock = 128;  // rows of a tile, of what a block owns: a tile for each warpgroup
constexpr int kThreads = 3 * 128;        // one warpgroup that copies, two that multiply
constexpr int kBox = kTile * 128;        // bytes of 64 columns of a tile of rows
template <int D>
constexpr int kBoxes = D / 64;  // of a tile of rows, in heads of D
constexpr int kScoreBytes = kTile * kTile * 2;
constexpr int kReaders = 256;                      // threads that multiply: each says that it is done with a stage
constexpr int kMostBlocks = 1024;                  // of a document
constexpr int64_t kMostScores = int64_t{9} << 29;  // bytes, of the heads that are taken at once
constexpr float kLog2E = 1.4426950408889634f;

// A block of 128 tokens of a document. Sorted: the longest documents first, and of each those with the most queries
// after them: what runs at a time reads the same queries, which the second-level cache holds once for all.
struct Task {
  int32_t begin, length;  // of the document
  int32_t block;          // which of its blocks
  int32_t tile;           // the document's first tile among all tiles
  int32_t pair;           // its first pair of tiles among all pairs
  int32_t prefix, keys;   // what it goes on from: the first token, and of how many tiles; 0: nothing
  int32_t followers;      // tiles behind its own of documents that go on from it
};
// The index-th 64 tokens of this document. Its pairs from `pair` on: with the tiles of what the document goes on from,
// then with the document's own up to itself.
struct Tile {
  int32_t begin, length, index, document, pair, unused[3];
};
constexpr int kNoWindow = 1 << 30;
// Tiles of keys before a query's own that it still sees.
__host__ __device__ constexpr int tiles_back(int64_t window) {
  return window > 0 && window < kNoWindow ? static_cast<int>((window + kTile - 2) / kTile) : kNoWindow;
}
__host__ __device__ constexpr int64_t pairs_before(int64_t tile, int64_t keys, int64_t back = kNoWindow) {
  return tile <= back ? tile * (tile + 1) / 2 + tile * keys : back * (back + 1) / 2 + (tile - back) * (back + 1);
}
// From a pair on the diagonal of tile 0 to one as far back of `tile`: what key_blocks steps over.
__host__ __device__ constexpr int64_t steps_before(int64_t tile, int64_t back) {
  return tile <= back ? tile * (tile + 1) / 2 : back * (back + 1) / 2 + (tile - back) * back;
}
// The first tile of keys that a tile of queries sees.
__host__ __device__ constexpr int first_key(int tile, int back) { return tile > back ? tile - back : 0; }
// Of a tile of queries, in the order in which key_blocks' threads want them, 16 each: see place_of().
struct Stats {
  float lse2[kTile], delta[kTile];
};
constexpr int kStatsBytes = static_cast<int>(sizeof(Stats));
__device__ __forceinline__ int place_of(int query) { return query % 8 / 2 * 16 + query / 8 * 2 + query % 2; }

struct TilesArgs {
  const Task* tasks;
  const Tile* table;
  const Stats* stats;  // [heads][tiles]
  unsigned char* ds;   // [heads of this part][pairs]: 64 keys × 64 queries as shared memory wants them
  bf16 *dq, *dk, *dv;
  int64_t lddq, lddk, lddv, tiles, pairs;
  int heads, kv_heads, first_kv, kv_count;  // of all; key heads of this part
  int window, back;                         // kNoWindow: none
  float scale, factor;                      // factor: scale·log2 e
};

// Documents to tiles and blocks, in one block of threads. The order among blocks that have equally much to do is
// whatever it happens to be: it decides nothing but who computes them.
template <int N>
__global__ void __launch_bounds__(N)
    make_tasks(const int32_t* cu, const int32_t* prefix, int documents, int most, int back, Task* tasks, Tile* tiles) {
  __shared__ int slots[kMostBlocks + 1], scan[2][N];
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i <= most; i += N) slots[i] = 0;
  __syncthreads();
  auto length = [&](int i) { return cu[i + 1] - cu[i]; };
  auto tiles_of = [&](int i) { return (length(i) + kTile - 1) / kTile; };
  // slots[r]: where blocks of the documents of `most − r` of them begin.
  for (int i = t; i < documents; i += N)
    if (const int n = (length(i) + kBlock - 1) / kBlock; n > 0) atomicAdd(&slots[most - n + 1], n);
  __syncthreads();
  if (t == 0)
    for (int r = 1; r <= most; ++r) slots[r] += slots[r - 1];
  __syncthreads();
  int tile = 0, pair = 0;  // before this round's documents
  for (int first = 0; first < documents; first += N) {
    const int i = first + t, n = i < documents ? length(i) : 0, mine = (n + kTile - 1) / kTile;
    const int from = prefix != nullptr && i < documents ? prefix[i] : -1, keys = from >= 0 ? tiles_of(from) : 0;
    const auto pairs = static_cast<int>(pairs_before(mine, keys, back));
    int followers = 0;
    for (int j = i + 1; prefix != nullptr && j < documents && prefix[j] == i; ++j) followers += tiles_of(j);
    scan[0][t] = mine, scan[1][t] = pairs;
    __syncthreads();
    for (int step = 1; step < N; step *= 2) {
      const int a = t >= step ? scan[0][t - step] : 0, b = t >= step ? scan[1][t - step] : 0;
      __syncthreads();
      scan[0][t] += a, scan[1][t] += b;
      __syncthreads();
    }
    const int my_tile = tile + scan[0][t] - mine, my_pair = pair + scan[1][t] - pairs;
    for (int k = 0; k < mine; ++k)
      tiles[my_tile + k] = {cu[i], n, k, i, my_pair + static_cast<int>(pairs_before(k, keys, back)), {}};
    const int blocks = (n + kBlock - 1) / kBlock;
    const int at = blocks > 0 ? atomicAdd(&slots[most - blocks], blocks) : 0;
    for (int b = 0; b < blocks; ++b)
      tasks[at + b] = {cu[i], n, b, my_tile, my_pair, from >= 0 ? cu[from] : 0, keys, followers};
    tile += scan[0][N - 1], pair += scan[1][N - 1];
    __syncthreads();
  }
}

// delta = Σ dout·out of 64 tokens and a head, beside the scaled lse; rows past the document's end get weight 0.
struct StatsArgs {
  const Tile* tiles;
  const bf16 *out, *dout;
  const float* lse;
  Stats* stats;
  int64_t ldo, lddo;
  StatsLayout at;
};
template <int D>
__global__ void __launch_bounds__(256) make_stats(const StatsArgs a) {
  allow_next_grid();
  wait_for_previous_grid();
  const Tile tile = a.tiles[blockIdx.x];
  const int64_t h = blockIdx.y;
  constexpr int kLanes = D / 8;
  const int64_t lane = threadIdx.x % kLanes;
#pragma unroll
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < kTile; r += 256 / kLanes) {
    const int64_t t = tile.index * kTile + r, row = tile.begin + t;
    float x[8], y[8], sum = 0;
    if (t < tile.length) {
      load<bf16, 8>(a.dout, row * a.lddo + h * D + lane * 8).unpack(x);
      load<bf16, 8>(a.out, row * a.ldo + h * D + lane * 8).unpack(y);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
    }
#pragma unroll
    for (int m = kLanes / 2; m > 0; m /= 2) sum += shuffle_xor(sum, m);
    if (lane == 0) {
      const float lse =
          t < tile.length
              ? a.lse[tile.document * a.at.document + tile.begin * a.at.offset + h * a.at.head + t * a.at.token] *
                    kLog2E
              : INFINITY;
      Stats& to = a.stats[h * gridDim.x + blockIdx.x];
      to.lse2[place_of(r)] = lse, to.delta[place_of(r)] = sum;
    }
  }
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr int kKeyStages = 4;
template <int D>
struct KeyShared {
  unsigned char k[kBoxes<D> * 2][kBox], v[kBoxes<D> * 2][kBox];  // both tiles' first 64 columns, then their second
  unsigned char q[kKeyStages][kBoxes<D>][kBox], dout[kKeyStages][kBoxes<D>][kBox];
  Stats stats[kKeyStages];
  Mbarrier full[kKeyStages], empty[kKeyStages], keys;
};

template <int N>
__device__ __forceinline__ void store_sums(const float (&d)[N], float factor, bf16* to, int64_t ld, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + half * 8 >= rows) continue;
    auto* line = reinterpret_cast<uint32_t*>(to + (row + half * 8) * ld) + lane % 4;
#pragma unroll
    for (int j = 0; j < N / 4; ++j)
      line[j * 4] = pack_bf16(d[j * 4 + half * 2] * factor, d[j * 4 + half * 2 + 1] * factor);
  }
}

// d = a·bᵀ of 64 rows of a block and a tile's, over all of D; a group of its own.
template <int D>
__device__ __forceinline__ void multiply_tiles(float (&d)[32], uint64_t a, uint64_t b) {
  multiply_64x64(d, a, b);
#pragma unroll
  for (int c = 1; c < D / 16; ++c)
    multiply_add_64x64(d, further(a, c / 4 * 2 * kBox + c % 4 * 32), further(b, c / 4 * kBox + c % 4 * 32));
  end_group();
}
// d (64 rows × D) += a·b over 16: a in registers or `down`, b a tile's rows.
__device__ __forceinline__ void add_rows(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  multiply_64x128(d, a, b);
}
__device__ __forceinline__ void add_rows(float (&d)[64], uint64_t a, uint64_t b) { multiply_64x128(d, a, b); }
__device__ __forceinline__ void add_rows(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  multiply_add_64x64(d, a, b);
}
__device__ __forceinline__ void add_rows(float (&d)[32], uint64_t a, uint64_t b) { multiply_add_64x64_down(d, a, b); }

// kShared: documents may go on from others. kWindow: none does, and there is a window.
template <int D, bool kShared, bool kWindow>
__global__ void __launch_bounds__(kThreads, 1)
    key_blocks(const __grid_constant__ TilesArgs a, const __grid_constant__ CUtensorMap q_map,
               const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
               const __grid_constant__ CUtensorMap dout_map) {
  allow_next_grid();
  wait_for_previous_grid();
  extern __shared__ __align__(1024) unsigned char space[];
  auto& s = *reinterpret_cast<KeyShared<D>*>(space);
  const int group = warpgroup(), kv = a.first_kv + static_cast<int>(blockIdx.x) % a.kv_count;
  const Task task = a.tasks[blockIdx.x / a.kv_count];
  const int per_kv = a.heads / a.kv_heads, tiles = (task.length + kTile - 1) / kTile, first = task.block * 2;
  const int followers = kShared ? task.followers : 0, own_keys = kShared ? task.keys : 0;
  // One past the last tile of queries that sees a tile of keys.
  auto end_of = [&](int tile) { return kWindow ? min(tiles, tile + a.back + 1) : tiles + followers; };
  if (threadIdx.x == 0) {
    s.keys.init(1);
    make_gates(s.full, s.empty, kReaders);
  }
  __syncthreads();
  StageRing<kKeyStages> ring;
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    s.keys.arrive_and_expect(4 * kBoxes<D> * kBox);
    for (int b = 0; b < kBoxes<D>; ++b)
      for (int r = 0; r < 2; ++r) {
        const int row = task.begin + task.block * kBlock + r * kTile;
        copy_box(s.k[b * 2 + r], k_map, kv * D + b * 64, row, &s.keys);
        copy_box(s.v[b * 2 + r], v_map, kv * D + b * 64, row, &s.keys);
      }
    const uint64_t policy = read_once();
    for (int h = kv * per_kv; h < (kv + 1) * per_kv; ++h)
      for (int m = first; m < end_of(first + 1); ++m, ring.advance()) {
        const int i = ring.slot;
        int row = task.begin + m * kTile;
        if (kShared && m >= tiles) {
          const Tile& other = a.table[task.tile + m];
          row = other.begin + other.index * kTile;
        }
        s.empty[i].wait(ring.parity ^ 1);
        s.full[i].arrive_and_expect(2 * kBoxes<D> * kBox + kStatsBytes);
        for (int b = 0; b < kBoxes<D>; ++b) {
          copy_box(s.q[i][b], q_map, h * D + b * 64, row, &s.full[i]);
          copy_box(s.dout[i][b], dout_map, h * D + b * 64, row, &s.full[i]);
        }
        copy_to_shared(&s.stats[i], a.stats + h * a.tiles + task.tile + m, kStatsBytes, &s.full[i], policy);
      }
    return;
  }
  take_registers<240>();
  const int w = group - 1, lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int key_tile = first + w, key_row = warp * 16 + lane / 4;  // and the row 8 below
  const int end = end_of(key_tile), of_head = key_tile < tiles ? end - key_tile : 0, total = per_kv * of_head;
  // The first tile of queries sees the first warpgroup's keys alone, as the last one within a window does the second's.
  auto pass_over = [&] {
    s.full[ring.slot].wait(ring.parity);
    s.empty[ring.slot].arrive();
    ring.advance();
  };
  if (total == 0) {
    for (int h = 0; h < per_kv * (1 + followers); ++h) pass_over();
    return;
  }
  const uint64_t k = across(shared_address(s.k[w])), v = across(shared_address(s.v[w]));
  // st and dp are written by products alone, and the sums' zeros by instructions that stay where they stand: where
  // ptxas finds anything else that touches a product's registers under way, it runs the products one after another.
  float dk[D / 2], dv[D / 2], st[32], dp[32];
#pragma unroll
  for (int i = 0; i < D / 2; ++i)
    asm volatile("mov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;" : "=f"(dk[i]), "=f"(dv[i]));
  auto scores = [&](int slot) { multiply_tiles<D>(st, k, across(shared_address(s.q[slot]))); };
  auto grads = [&](int slot) { multiply_tiles<D>(dp, v, across(shared_address(s.dout[slot]))); };
  // A row of ds takes 128 bytes: queries 8j + 2c + e stand at 32·(j/4) + 8c + 2·(j%4) + e, so that a thread writes 16.
  const int chunk = lane % 4;
  const int nearer = kWindow ? first_key(key_tile, a.back) : 0;
  unsigned char* to = a.ds +
                      ((kv - a.first_kv) * per_kv * a.pairs + task.pair + own_keys + key_tile - nearer +
                       pairs_before(key_tile, own_keys, kWindow ? a.back : kNoWindow)) *
                          kScoreBytes +
                      key_row * 128 + (chunk ^ lane / 4) * 16;
  s.keys.wait(0);
  if (w == 1) pass_over();
  s.full[ring.slot].wait(ring.parity);
  begin_products();
  scores(ring.slot);
  wait_groups<0>();
  for (int n = 0, m = key_tile; n < total; ++n) {
    const int i = ring.slot;
    begin_products();
    grads(i);
    const auto of = [&](const float(&stats)[kTile]) {  // of queries 8j + 2c and the next, two j at a time
      return reinterpret_cast<const float4*>(stats + chunk * 16);
    };
    float p[32];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float4 lse = of(s.stats[i].lse2)[j / 2];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        p[j * 4 + e] =
            exp2_fast(st[j * 4 + e] * a.factor - (e < 4 ? (e % 2 ? lse.y : lse.x) : (e % 2 ? lse.w : lse.z)));
    }
    if (m == key_tile || (kWindow && (m - key_tile + 1) * kTile > a.window)) {  // keys ahead, or out of the window
      const int apart = (m - key_tile) * kTile + chunk * 2 - key_row;
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int by = apart + j * 8 + e % 2 - e / 2 * 8;
          if (kWindow ? static_cast<unsigned>(by) >= static_cast<unsigned>(a.window)
                      : key_row + e / 2 * 8 > j * 8 + chunk * 2 + e % 2)
            p[j * 4 + e] = 0;
        }
    }
    if (kShared && m >= tiles) {  // other documents' queries: of the last tile of keys they see the rows that are there
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (key_tile * kTile + key_row + e / 2 * 8 >= task.length) p[j * 4 + e] = 0;
    }
    uint32_t left[4][4];
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) left[c][e] = pack_bf16(p[c * 8 + e * 2], p[c * 8 + e * 2 + 1]);
    begin_products();
#pragma unroll
    for (int c = 0; c < 4; ++c) add_rows(dv, left[c], further(down(shared_address(s.dout[i]), kBox), c * 2048));
    end_group();
    wait_groups<1>();  // dp
    uint32_t grad[4][4];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float4 delta = of(s.stats[i].delta)[j / 2];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float left = r < 2 ? delta.x : delta.z, right = r < 2 ? delta.y : delta.w;
        const int at = j * 4 + r * 2;
        grad[j / 2][r] = pack_bf16(p[at] * (dp[at] - left), p[at + 1] * (dp[at + 1] - right));
      }
    }
    auto* left_half = reinterpret_cast<uint4*>(to);
    auto* right_half = reinterpret_cast<uint4*>(reinterpret_cast<uintptr_t>(to) ^ 64);
    __stcs(left_half, make_uint4(grad[0][0], grad[0][2], grad[1][0], grad[1][2]));
    __stcs(right_half, make_uint4(grad[2][0], grad[2][2], grad[3][0], grad[3][2]));
    __stcs(left_half + 64, make_uint4(grad[0][1], grad[0][3], grad[1][1], grad[1][3]));
    __stcs(right_half + 64, make_uint4(grad[2][1], grad[2][3], grad[3][1], grad[3][3]));
    if (kWindow)
      to += static_cast<int64_t>(min(m + 1, a.back)) * kScoreBytes;
    else if (!kShared || m + 1 < tiles)
      to += static_cast<int64_t>(m + 1 + own_keys) * kScoreBytes;
    else if (m + 1 < tiles + followers)  // from the pair with this tile to that with the next one
      to += static_cast<int64_t>(a.table[task.tile + m + 1].pair - a.table[task.tile + m].pair -
                                 (m + 1 == tiles ? own_keys : 0)) *
            kScoreBytes;
    // The next scores are asked for before this dk: between them the matrix units have something to do. After the last
    // tile they are those of the same stage once more, which nobody reads.
    if (n + 1 < total) {
      ring.advance();
      if (++m == end) {
        m = key_tile;
        if constexpr (kWindow)
          to += (a.pairs - steps_before(end, a.back) + steps_before(m, a.back)) * kScoreBytes;
        else if constexpr (kShared)
          to += (a.pairs + task.pair + own_keys + pairs_before(m, own_keys) -
                 (followers > 0 ? a.table[task.tile + tiles + followers - 1].pair
                                : task.pair + own_keys + pairs_before(tiles - 1, own_keys))) *
                kScoreBytes;
        else
          to += (a.pairs - static_cast<int64_t>(tiles) * (tiles + 1) / 2 + static_cast<int64_t>(m) * (m + 1) / 2) *
                kScoreBytes;
        if (w == 1 || (kWindow && end < end_of(first + 1))) pass_over();
      }
      s.full[ring.slot].wait(ring.parity);
    }
    begin_products();
    scores(ring.slot);
#pragma unroll
    for (int c = 0; c < 4; ++c) add_rows(dk, grad[c], further(down(shared_address(s.q[i]), kBox), c * 2048));
    end_group();
    wait_groups<0>();
    s.empty[i].arrive();
  }
  wait_groups<0>();
  const int row = task.block * kBlock + w * kTile, left_rows = task.length - row;
  const int64_t at = task.begin + row;
  store_sums(dv, 1.0f, a.dv + at * a.lddv + kv * D, a.lddv, left_rows);
  store_sums(dk, a.scale, a.dk + at * a.lddk + kv * D, a.lddk, left_rows);
}

// What limits this pass is the second-level cache, so that a warpgroup has two tiles of dq for each tile of keys: of H
// heads that read the same keys, or R tiles after one another.
template <int D, int H, int R>
struct QueryShared {
  static constexpr int kStages = 4, kTiles = 2 * R;
  unsigned char k[kStages][kBoxes<D>][kBox];
  unsigned char ds[kStages][H][kTiles][kScoreBytes];
  Mbarrier full[kStages], empty[kStages];
};

template <int D, int H, int R>
__global__ void __launch_bounds__(kThreads, 1)
    query_blocks(const __grid_constant__ TilesArgs a, const __grid_constant__ CUtensorMap k_map) {
  allow_next_grid();
  wait_for_previous_grid();
  using Shared = QueryShared<D, H, R>;
  extern __shared__ __align__(1024) unsigned char space[];
  Shared& s = *reinterpret_cast<Shared*>(space);
  const int per_kv = a.heads / a.kv_heads, sets = a.kv_count * per_kv / H;
  const int group = warpgroup(), local = static_cast<int>(blockIdx.x) % sets * H, head = a.first_kv * per_kv + local;
  const Task task = a.tasks[blockIdx.x / sets];
  const int tiles = (task.length + kTile - 1) / kTile, blocks = (task.length + kBlock - 1) / kBlock;
  const int block = blocks - 1 - task.block;  // the last queries have the most keys before them
  if (block % R != 0) return;                 // the block before has these too
  const int first = block * 2, low = first_key(first, a.back),
            keys = task.keys + min(first + Shared::kTiles, tiles);  // one past the last tile of keys
  // Whether the index-th tile of queries sees a tile of keys.
  auto sees = [&](int index, int n) {
    return first + index < tiles && n <= task.keys + first + index && n >= first_key(first + index, a.back);
  };
  if (threadIdx.x == 0) make_gates(s.full, s.empty, kReaders);
  __syncthreads();
  StageRing<Shared::kStages> ring;
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    const uint64_t policy = read_once();
    for (int n = low; n < keys; ++n, ring.advance()) {
      const int i = ring.slot;
      int seeing = 0;
      for (int index = 0; index < Shared::kTiles; ++index) seeing += sees(index, n);
      s.empty[i].wait(ring.parity ^ 1);
      const int row = n < task.keys ? task.prefix + n * kTile : task.begin + (n - task.keys) * kTile;
      s.full[i].arrive_and_expect(kBoxes<D> * kBox + H * seeing * kScoreBytes);
      for (int b = 0; b < kBoxes<D>; ++b) copy_box(s.k[i][b], k_map, head / per_kv * D + b * 64, row, &s.full[i]);
      for (int index = 0; index < Shared::kTiles; ++index) {
        if (!sees(index, n)) continue;
        const int64_t pair =
            task.pair + pairs_before(first + index, task.keys, a.back) - first_key(first + index, a.back) + n;
        for (int h = 0; h < H; ++h)
          copy_to_shared(s.ds[i][h][index], a.ds + ((local + h) * a.pairs + pair) * kScoreBytes, kScoreBytes,
                         &s.full[i], policy);
      }
    }
    return;
  }
  take_registers<240>();
  const int mine = (group - 1) * R;  // the first of this warpgroup's tiles
  float dq[H][R][D / 2];             // zeros that stay where they stand, as in key_blocks
#pragma unroll
  for (int h = 0; h < H; ++h)
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < D / 2; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(dq[h][r][i]));
  int last = -1;  // the stage that products may still read
  for (int n = low; n < keys; ++n, ring.advance()) {
    const int i = ring.slot;
    s.full[i].wait(ring.parity);
    // Each case is a pipeline of its own: where one may be left out, ptxas runs the products one after another.
    auto add = [&]<int... kRows>(std::integer_sequence<int, kRows...>) {
      const uint64_t k = down(shared_address(s.k[i]), kBox);
      begin_products();
#pragma unroll
      for (int h = 0; h < H; ++h)
        (
            [&] {
              const uint64_t ds = down(shared_address(s.ds[i][h][mine + kRows]), kBox);
#pragma unroll
              for (int c = 0; c < 4; ++c) add_rows(dq[h][kRows], further(ds, c * 2048), further(k, c * 2048));
            }(),
            ...);
      end_group();
      wait_groups<1>();
    };
    const bool one = sees(mine, n), other = R > 1 && sees(mine + R - 1, n);
    if (one && (R == 1 || other))
      add(std::make_integer_sequence<int, R>());
    else if (R > 1 && one)
      add(std::integer_sequence<int, 0>());
    else if (R > 1 && other)
      add(std::integer_sequence<int, R - 1>());
    else
      wait_groups<0>();
    if (last >= 0) s.empty[last].arrive();
    last = i;
  }
  wait_groups<0>();
  // Row p of the product is query 32·(p/32) + 8·(p/2%4) + 2·(p/8%4) + p%2 of its tile.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int p = warp * 16 + lane / 4 + half * 8;
      const int t = (first + mine + r) * kTile + p / 32 * 32 + p / 2 % 4 * 8 + p / 8 % 4 * 2 + p % 2;
      if (t >= task.length) continue;
#pragma unroll
      for (int h = 0; h < H; ++h) {
        auto* line = reinterpret_cast<uint32_t*>(a.dq + (task.begin + t) * a.lddq + (head + h) * D) + lane % 4;
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
          line[j * 4] = pack_bf16(dq[h][r][j * 4 + half * 2] * a.scale, dq[h][r][j * 4 + half * 2 + 1] * a.scale);
      }
    }
}

bool even(const ConstMat& m) { return m.type == DType::kBF16 && even_rows(m); }

struct Counts {
  int64_t blocks = 0, tiles = 0, pairs = 0;
  void add(int64_t length, int64_t keys, int64_t back) {
    const int64_t n = ceil_div(length, kTile);
    blocks += ceil_div(length, kBlock), tiles += n, pairs += pairs_before(n, keys, back);
  }
};
int64_t rounded(int64_t bytes) { return ceil_div(bytes, 1024) * 1024; }
int64_t table_bytes(const Counts& n, int64_t heads) {
  return rounded(n.blocks * static_cast<int64_t>(sizeof(Task))) +
         rounded(n.tiles * static_cast<int64_t>(sizeof(Tile))) + rounded(heads * n.tiles * kStatsBytes);
}

}  // namespace

bool tiles_cover(const AttentionGrad& c) {
  if (!device::card().warpgroups) return false;
  return tiles_head(c.head_dim) && c.causal && (c.window == 0 || c.prefix == nullptr) && !(c.dropout > 0) &&
         even(c.q) && even(c.k) && even(c.v) && even(c.out) && even(c.dout) && even(c.dq) && even(c.dk) && even(c.dv) &&
         (c.longest > 0 ? c.longest : c.q.rows) <= kMostBlocks * kBlock;
}

namespace {

// What documents of up to the longest take. The tables are largest where every token is a document. A key head's scores
// are most where every document has a last tile that it hardly begins, or a single token.
struct Room {
  int64_t tables = 0, scores = 0, of_key_head = 0;  // bytes; scores: of all heads, documents as long as they get
};
Room room_of(const AttentionGrad& c) {
  const int64_t longest = c.longest > 0 ? c.longest : c.q.rows, back = tiles_back(c.window);
  Counts dense, most;
  for (int64_t t = 0; t < c.q.rows; t += longest) dense.add(std::min(longest, c.q.rows - t), 0, back);
  most.blocks = most.tiles = c.q.rows;
  const int64_t n = ceil_div(longest, kTile),
                least = (n - 1) * kTile + 1;  // tiles of the longest, tokens that need them
  const int64_t pairs = std::max(
      c.q.rows, c.q.rows / least * pairs_before(n, 0, back) + pairs_before(ceil_div(c.q.rows % least, kTile), 0, back));
  return {table_bytes(most, c.heads), dense.pairs * c.heads * kScoreBytes,
          pairs * (c.heads / c.kv_heads) * kScoreBytes};
}

}  // namespace

bool tiles_always_fit(const AttentionGrad& c) { return room_of(c).of_key_head <= kMostScores; }

size_t tiles_grad_scratch(const AttentionGrad& c) {
  const Room r = room_of(c);
  return static_cast<size_t>(r.tables + std::min(std::max(r.scores, r.of_key_head), kMostScores));
}

namespace {

struct Extent {
  Counts n;
  int64_t longest = 0, tables = 0, at_once = 0;  // at_once: key heads whose scores fit
};
// Whatever goes on from another goes on from no more than the longest: what it is lies on the device.
Extent extent_of(const AttentionGrad& c, size_t bytes) {
  Extent e;
  const auto length = [&](int64_t i) { return c.host_cu_seqlens[i + 1] - c.host_cu_seqlens[i]; };
  for (int64_t i = 0; i < c.documents; ++i) e.longest = std::max<int64_t>(e.longest, length(i));
  for (int64_t i = 0; i < c.documents; ++i)
    e.n.add(length(i), c.prefix != nullptr ? ceil_div(e.longest, kTile) : 0, tiles_back(c.window));
  e.tables = table_bytes(e.n, c.heads);
  const int64_t of_kv = e.n.pairs * (c.heads / c.kv_heads) * kScoreBytes;
  e.at_once = std::min(c.kv_heads, (static_cast<int64_t>(bytes) - e.tables) / of_kv);
  return e;
}

// What runs for heads of one size.
struct Kernels {
  void (*stats)(StatsArgs);
  void (*keys)(TilesArgs, CUtensorMap, CUtensorMap, CUtensorMap, CUtensorMap);
  void (*queries)(TilesArgs, CUtensorMap);
  size_t key_bytes, query_bytes;
};
template <int D>
Kernels kernels_of(bool two_heads, bool shared, bool window) {
  return {make_stats<D>,
          shared   ? key_blocks<D, true, false>
          : window ? key_blocks<D, false, true>
                   : key_blocks<D, false, false>,
          two_heads ? query_blocks<D, 2, 1> : query_blocks<D, 1, 2>, sizeof(KeyShared<D>),
          two_heads ? sizeof(QueryShared<D, 2, 1>) : sizeof(QueryShared<D, 1, 2>)};
}

}  // namespace

bool tiles_fit(const AttentionGrad& c, size_t bytes) { return c.q.rows == 0 || extent_of(c, bytes).at_once > 0; }

void tiles_grad(Stream stream, const AttentionGrad& c, const StatsLayout& layout, void* scratch, size_t bytes) {
  if (c.q.rows == 0) return;
  const auto [n, longest, tables, at_once] = extent_of(c, bytes);
  const int64_t per_kv = c.heads / c.kv_heads;
  require(at_once > 0, "attention's gradient was planned with less memory than these documents need");
  auto* tasks = static_cast<Task*>(scratch);
  auto* tiles =
      reinterpret_cast<Tile*>(static_cast<char*>(scratch) + rounded(n.blocks * static_cast<int64_t>(sizeof(Task))));
  auto* stats =
      reinterpret_cast<Stats*>(reinterpret_cast<char*>(tiles) + rounded(n.tiles * static_cast<int64_t>(sizeof(Tile))));
  const bool few = c.documents <= 32;
  const auto list = few ? make_tasks<32> : make_tasks<1024>;
  list<<<1, few ? 32 : 1024, 0, stream>>>(c.cu_seqlens, c.prefix, static_cast<int>(c.documents),
                                          static_cast<int>(ceil_div(longest, kBlock)), tiles_back(c.window), tasks,
                                          tiles);
  const StatsArgs of_stats{
      tiles, static_cast<const bf16*>(c.out.p), static_cast<const bf16*>(c.dout.p), c.lse, stats, c.out.ld, c.dout.ld,
      layout};
  TilesArgs a{};
  a.tasks = tasks, a.table = tiles, a.stats = stats, a.ds = static_cast<unsigned char*>(scratch) + tables;
  a.dq = static_cast<bf16*>(c.dq.p), a.dk = static_cast<bf16*>(c.dk.p), a.dv = static_cast<bf16*>(c.dv.p);
  a.lddq = c.dq.ld, a.lddk = c.dk.ld, a.lddv = c.dv.ld, a.tiles = n.tiles, a.pairs = n.pairs;
  a.heads = static_cast<int>(c.heads), a.kv_heads = static_cast<int>(c.kv_heads), a.scale = c.scale,
  a.factor = c.scale * kLog2E;
  a.back = tiles_back(c.window), a.window = a.back == kNoWindow ? kNoWindow : static_cast<int>(c.window);
  const bool two = per_kv % 2 == 0;
  const Kernels kernels = c.head_dim == 64 ? kernels_of<64>(two, c.prefix != nullptr, a.back != kNoWindow)
                                           : kernels_of<128>(two, c.prefix != nullptr, a.back != kNoWindow);
  for (const auto& [kernel, shared] : {std::pair{reinterpret_cast<const void*>(kernels.keys), kernels.key_bytes},
                                       {reinterpret_cast<const void*>(kernels.queries), kernels.query_bytes}})
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)) ==
                cudaSuccess,
            "attention's gradient needs 200 KB of shared memory");
  launch_dependent(kernels.stats, dim3(static_cast<unsigned>(n.tiles), static_cast<unsigned>(c.heads)), dim3(256), 0,
                   stream, of_stats);
  const CUtensorMap q = boxes_of(c.q, 64, kTile), k = boxes_of(c.k, 64, kTile), v = boxes_of(c.v, 64, kTile),
                    dout = boxes_of(c.dout, 64, kTile);
  for (int64_t first = 0; first < c.kv_heads; first += at_once) {
    a.first_kv = static_cast<int>(first), a.kv_count = static_cast<int>(std::min(at_once, c.kv_heads - first));
    launch_dependent(kernels.keys, dim3(static_cast<unsigned>(n.blocks * a.kv_count)), dim3(kThreads),
                     kernels.key_bytes, stream, a, q, k, v, dout);
    launch_dependent(kernels.queries, dim3(static_cast<unsigned>(n.blocks * a.kv_count * per_kv / (two ? 2 : 1))),
                     dim3(kThreads), kernels.query_bytes, stream, a, k);
  }
  check_launch("attention_tiles");
}

}  // namespace mxt::kernels::cuda
