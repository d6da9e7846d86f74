// One block of threads takes a slice of 1,024 columns of dy and tiles of 16 tokens: its 16 warps hold 64 columns each
// (four warps a scheduler: with two, loads, arithmetic and products of a tile wait for each other). dB of those columns
// stays in registers over all of them; dz of those tokens is summed over the warps and left as one part for each slice.
// A second kernel adds the parts in order, so results never depend on who was first.
// Ranks 8 and 16. Above, two products are faster on an H100 (0.6B, 16 × 2,048 tokens: rank 32 127,115 tok/s against
// 124,257 with B in shared memory and 16 ranks of dz a warp; rank 64 125,037 against 121,700): they find dy in the
// second-level cache the second time, while here parts of dz and their sums over the warps grow with the rank.
#include "kernels/cuda/lora.h"

#include <algorithm>

#include "kernels/cuda/lora_parts.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kWarpCols = 64, kSlice = kWarps * kWarpCols, kStages = 5, kMostSlices = 96;
constexpr int kTileBytes = kTile * kSlice * 2, kPadded = Ranks<16>::kPadded, kSumFloats = kWarps * kTile * kPadded;
constexpr size_t kShared = kStages * (kTileBytes + Ranks<16>::kTileBytes) + 2 * kSumFloats * sizeof(float);

struct Slice {
  int32_t col, cols, z_col;
};
struct Args {
  const uint4 *dy, *z;  // packs of eight
  const bf16* b;
  float *dz_parts, *db_parts;  // [slices][tokens][rank], [splits][rank][n]
  int64_t n, ld_b;
  int32_t tokens, ld_dy, ld_z;  // of dy and z in packs
  Slice slices[kMostSlices];
};

template <int R>
__global__ __launch_bounds__(kWarps * 32, 1) void lora_grad_kernel(const __grid_constant__ Args a) {
  using Z = Ranks<R>;
  allow_next_grid();
  wait_for_previous_grid();
  extern __shared__ __align__(128) unsigned char space[];
  unsigned char* z_space = space + kStages * kTileBytes;
  auto* sums = reinterpret_cast<float*>(z_space + kStages * Z::kTileBytes);
  const Slice s = a.slices[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const TokenTiles<int> tiles(a.tokens, false);

  // The warp's rows of B as the second operand of dz = dy·B.
  uint32_t b[kWarpCols / 16][2][2] = {};
#pragma unroll
  for (int k = 0; k < kWarpCols / 16; ++k)
#pragma unroll
    for (int t = 0; t < R / 8; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp * kWarpCols + k * 16 + h * 8 + lane % 4 * 2;
        const bf16* p = a.b + (s.col + row) * a.ld_b + s.z_col + t * 8 + lane / 4;
        b[k][t][h] = row < s.cols ? static_cast<uint32_t>(p[0].bits) | static_cast<uint32_t>(p[a.ld_b].bits) << 16 : 0u;
      }

  // A thread copies the same 16 bytes of every so many-th row. Chunks change places within a row, so that a column of
  // them lies in different banks.
  constexpr int kChunks = kSlice / 8, kRowsAtOnce = kWarps * 32 / kChunks;
  const int row = thread / kChunks, c = thread % kChunks, pack = s.col / 8 + c;
  const uint32_t place = shared_address(space) + row * kSlice * 2;
  auto fetch = [&](int tile, int stage) {
    if (tile < tiles.count) {
      const int first = tiles.token(tile);
#pragma unroll
      for (int i = 0; i < kTile / kRowsAtOnce; ++i) {
        const int token = first + row + i * kRowsAtOnce;
        const bool inside = token < a.tokens && c * 8 < s.cols;
        copy_16(place + stage * kTileBytes + i * kRowsAtOnce * kSlice * 2 + ((c ^ ((row + i * kRowsAtOnce) & 7)) * 16),
                a.dy + (inside ? token * a.ld_dy + pack : 0), inside);
      }
      if (thread < kTile * Z::kChunks) {
        const int z_row = thread / Z::kChunks, z_chunk = thread % Z::kChunks, token = first + z_row;
        const bool inside = token < a.tokens && z_chunk * 8 < R;
        copy_16(shared_address(z_space + stage * Z::kTileBytes) + Z::place(z_row, z_chunk) * 16,
                a.z + (inside ? token * a.ld_z + s.z_col / 8 + z_chunk : 0), inside);
      }
    }
    copies_end();
  };
  const int my_rank = thread % kPadded;
  float* parts = a.dz_parts + static_cast<int64_t>(blockIdx.x) * a.tokens * R + my_rank;
  auto finish = [&](int tile) {  // the sum over the warps, one element a thread of the first half
    if (thread >= kTile * kPadded || my_rank >= R) return;
    const float* from = sums + (tile & 1) * kSumFloats + thread;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kPadded];
    const int token = tiles.token(tile) + thread / kPadded;
    if (token < a.tokens) parts[token * R] = total;
  };

  float db[kWarpCols / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(i, i);
  int stage = 0;
  for (int tile = 0; tile < tiles.count; ++tile) {
    copies_wait<kStages - 2>();
    __syncthreads();
    fetch(tile + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
    if (tile > 0) finish(tile - 1);
    const uint32_t dy_at = shared_address(space + stage * kTileBytes) + lane % 16 * kSlice * 2;
    const int mine = warp * (kWarpCols / 8) + lane / 16, turn = lane & 7;
    uint32_t z[4];
    load_transposed(z, shared_address(z_space + stage * Z::kTileBytes) +
                           Z::place((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1) * 16);
    float dz[2][4] = {};
#pragma unroll
    for (int k = 0; k < kWarpCols / 16; ++k) {
      const uint32_t at = dy_at + (((mine + k * 2) ^ turn) * 16);
      uint32_t rows[4], cols[4];
      load_matrices(rows, at);
      load_transposed(cols, at);
      multiply_add(dz[0], rows, b[k][0][0], b[k][0][1]);
      multiply_add(dz[1], rows, b[k][1][0], b[k][1][1]);
      multiply_add(db[2 * k], z, cols[0], cols[1]);
      multiply_add(db[2 * k + 1], z, cols[2], cols[3]);
    }
    float* mine_sums = sums + (tile & 1) * kSumFloats + warp * kTile * kPadded + lane / 4 * kPadded + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      *reinterpret_cast<float2*>(mine_sums + t * 8) = make_float2(dz[t][0], dz[t][1]);
      *reinterpret_cast<float2*>(mine_sums + 8 * kPadded + t * 8) = make_float2(dz[t][2], dz[t][3]);
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  __syncthreads();
  if (tiles.count > 0) finish(tiles.count - 1);
  // db is [rank][column] here: the second kernel turns it.
#pragma unroll
  for (int t = 0; t < kWarpCols / 8; ++t) {
    const int col = warp * kWarpCols + t * 8 + lane % 4 * 2;
    if (col >= s.cols) continue;
    float* to = a.db_parts + (static_cast<int64_t>(blockIdx.y) * R + lane / 4) * a.n + s.col + col;
    *reinterpret_cast<float2*>(to) = make_float2(db[t][0], db[t][1]);
    if (R > 8) *reinterpret_cast<float2*>(to + 8 * a.n) = make_float2(db[t][2], db[t][3]);
  }
}

__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <int kRank>
__global__ __launch_bounds__(256) void lora_sum_kernel(const __grid_constant__ SumArgs a) {
  wait_for_previous_grid();
  if (blockIdx.x < a.dz_grid) {  // four ranks of a token a thread
    const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, per_block = a.tokens * (kRank / 4);
    if (i >= per_block * a.blocks) return;
    const SumBlock& k = a.block[i / per_block];
    const int64_t at = i % per_block, token = at / (kRank / 4), r = at % (kRank / 4) * 4;
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int s = k.first; s < k.first + k.count; ++s)
      total = plus(total, *reinterpret_cast<const float4*>(a.dz_parts + (s * a.tokens + token) * kRank + r));
    *reinterpret_cast<uint2*>(a.dz + token * a.ld_dz + k.z_col + r) =
        make_uint2(pack_bf16(total.x, total.y), pack_bf16(total.z, total.w));
    return;
  }
  if (blockIdx.x >= a.dz_grid + a.db_grid) {  // four columns of a rank a thread
    const int64_t i = (static_cast<int64_t>(blockIdx.x - a.dz_grid - a.db_grid) * 256 + threadIdx.x) * 4,
                  count = kRank * a.n_da;
    if (i >= count) return;
    auto* to = reinterpret_cast<float4*>(a.da + i);
    float4 total = a.accumulate_da ? *to : make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int s = 0; s < a.splits; ++s)
      total = plus(total, *reinterpret_cast<const float4*>(a.da_parts + s * count + i));
    *to = total;
    return;
  }
  // Four ranks of a column a thread; neighbouring threads take neighbouring columns.
  const int64_t i = static_cast<int64_t>(blockIdx.x - a.dz_grid) * 256 + threadIdx.x, col = i % a.n, r = i / a.n * 4;
  if (r >= kRank) return;
  for (int b = 0; b < a.blocks; ++b) {
    const SumBlock& k = a.block[b];
    if (col < k.col || col >= k.col + k.cols) continue;
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int s = 0; s < a.splits; ++s) {
      const float* p = a.db_parts + (s * kRank + r) * a.n + col;
      total = plus(total, make_float4(p[0], p[a.n], p[2 * a.n], p[3 * a.n]));
    }
    auto* to = reinterpret_cast<float4*>(k.db + (col - k.col) * kRank + r);
    total = make_float4(total.x * k.scale, total.y * k.scale, total.z * k.scale, total.w * k.scale);
    *to = a.accumulate ? plus(*to, total) : total;
    return;
  }
}

int64_t rank_of(const LoraGrad& g) { return g.blocks.front().rank; }

int slices_of(const LoraGrad& g) {
  int n = 0;
  for (const auto& k : g.blocks) n += static_cast<int>(ceil_div(k.cols, kSlice));
  return n;
}

}  // namespace

int lora_splits(int64_t tokens, int slices) {
  const int most = static_cast<int>(std::clamp<int64_t>(ceil_div(tokens, kTile) / 4, 1, 64));
  int best = 1;
  double least = 1e9;
  for (int k = 1; k <= most; ++k) {
    const double time = static_cast<double>(ceil_div(slices * k, kProcessors)) / k + 0.002 * k;
    if (time < least) least = time, best = k;
  }
  return best;
}

void add_parts(cudaStream_t stream, SumArgs sum, int64_t rank) {
  sum.dz_grid = static_cast<unsigned>(ceil_div(sum.tokens * (rank / 4) * sum.blocks, 256));
  sum.db_grid = sum.db_parts != nullptr ? static_cast<unsigned>(ceil_div(sum.n * (rank / 4), 256)) : 0u;
  const auto da_grid = sum.da != nullptr ? static_cast<unsigned>(ceil_div(sum.n_da * (rank / 4), 256)) : 0u;
  with_rank(rank, [&](auto r) {
    launch_dependent(lora_sum_kernel<r.value>, dim3(sum.dz_grid + sum.db_grid + da_grid), dim3(256), 0, stream, sum);
  });
  check_launch("sums of an adapter's parts");
}

bool lora_grad_covers(const LoraGrad& g) { return lora_grad_covers(g, 16); }

bool lora_grad_covers(const LoraGrad& g, int64_t most_ranks) {
  if (kShared > device::card().shared || g.blocks.empty() || rank_of(g) > most_ranks ||
      (rank_of(g) != 8 && rank_of(g) % 16 != 0))
    return false;
  if (g.dy.type != DType::kBF16 || g.b.type != DType::kBF16 || g.z.type != DType::kBF16 || g.dz.type != DType::kBF16)
    return false;
  if (g.dy.ld % 8 != 0 || g.z.ld % 8 != 0 || g.dz.ld % 4 != 0 || !wide(g.dy.p) || !wide(g.z.p) || !wide(g.dz.p) ||
      !packs_in_32_bits(g.dy) || !packs_in_32_bits(g.z))
    return false;
  for (const auto& k : g.blocks)
    if (k.rank != rank_of(g) || k.cols % 8 != 0 || k.col % 8 != 0 || k.z_col % 8 != 0 || !wide(k.db)) return false;
  return g.blocks.size() <= kMostBlocks && slices_of(g) <= kMostSlices && g.dy.rows > 0;
}

size_t lora_grad_scratch(const LoraGrad& g) {
  return (static_cast<size_t>(slices_of(g)) * static_cast<size_t>(g.dy.rows) +
          static_cast<size_t>(lora_splits(g.dy.rows, slices_of(g))) * static_cast<size_t>(g.dy.cols)) *
         static_cast<size_t>(rank_of(g)) * sizeof(float);
}

void lora_grad(cudaStream_t stream, const LoraGrad& g, void* scratch) {
  const int64_t rank = rank_of(g);
  const int slices = slices_of(g), splits = lora_splits(g.dy.rows, slices);
  Args a{};
  a.dy = static_cast<const uint4*>(g.dy.p), a.b = static_cast<const bf16*>(g.b.p),
  a.z = static_cast<const uint4*>(g.z.p);
  a.tokens = static_cast<int32_t>(g.dy.rows), a.ld_dy = packs_of(g.dy), a.ld_z = packs_of(g.z), a.n = g.dy.cols,
  a.ld_b = g.b.ld;
  a.dz_parts = static_cast<float*>(scratch);
  a.db_parts = a.dz_parts + slices * g.dy.rows * rank;
  SumArgs sum{};
  sum.dz_parts = a.dz_parts, sum.db_parts = a.db_parts, sum.dz = static_cast<bf16*>(g.dz.p);
  sum.tokens = g.dy.rows, sum.n = a.n, sum.ld_dz = g.dz.ld, sum.blocks = static_cast<int32_t>(g.blocks.size()),
  sum.splits = splits, sum.accumulate = g.accumulate;
  int n = 0;
  for (size_t i = 0; i < g.blocks.size(); ++i) {
    const auto& k = g.blocks[i];
    sum.block[i] = {k.col, k.cols, k.z_col, n, static_cast<int32_t>(ceil_div(k.cols, kSlice)), k.scale, k.db};
    for (int64_t c = 0; c < k.cols; c += kSlice)
      a.slices[n++] = {static_cast<int32_t>(k.col + c), static_cast<int32_t>(std::min<int64_t>(kSlice, k.cols - c)),
                       static_cast<int32_t>(k.z_col)};
  }
  const auto kernel = rank == 8 ? lora_grad_kernel<8> : lora_grad_kernel<16>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)) ==
              cudaSuccess,
          "lora_grad needs 195 KB of shared memory");
  launch_dependent(kernel, dim3(static_cast<unsigned>(slices), static_cast<unsigned>(splits)), dim3(kWarps * 32),
                   kShared, stream, a);
  check_launch("lora_grad");
  add_parts(stream, sum, rank);
}

}  // namespace mxt::kernels::cuda
