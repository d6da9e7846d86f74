// One block of threads takes a slice of 1,024 columns of dy and a range of tokens, 16 of them at a time: its 16 warps
// hold 64 columns each (four warps a scheduler: with two, loads, arithmetic and products of a tile wait for each
// other). dB of those columns stays in registers over the whole range; dz of those tokens is summed over the warps and
// left as one part for each slice. A second kernel adds the parts in order, so results never depend on who was first.
#include "kernels/cuda/lora.h"

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRank = 16, kWarps = 16, kWarpCols = 64, kSlice = kWarps * kWarpCols, kTile = 16, kStages = 5;
constexpr int kMostSlices = 96, kMostBlocks = 8,
              kProcessors = 132;  // multiprocessors of an H100; another number only costs time
constexpr int kTileBytes = kTile * kSlice * 2, kZBytes = kTile * kRank * 2, kSumFloats = kWarps * kTile * kRank;
constexpr int kShared = kStages * (kTileBytes + kZBytes) + 2 * kSumFloats * static_cast<int>(sizeof(float));

struct Slice {
  int32_t col, cols, z_col;
};
struct Args {
  const bf16 *dy, *b, *z;
  float *dz_parts, *db_parts;  // [slices][tokens][16], [splits][16][n]
  int64_t tokens, n, ld_dy, ld_b, ld_z;
  Slice slices[kMostSlices];
};

// 16 bytes, or zeros where they lie outside.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__global__ __launch_bounds__(kWarps * 32, 1) void lora_grad_kernel(const __grid_constant__ Args a) {
  next_may_start();
  extern __shared__ __align__(128) unsigned char space[];
  unsigned char* z_space = space + kStages * kTileBytes;
  auto* sums = reinterpret_cast<float*>(z_space + kStages * kZBytes);
  const Slice s = a.slices[blockIdx.x];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t tiles = (a.tokens + kTile - 1) / kTile, first = tiles * blockIdx.y / gridDim.y,
                last = tiles * (blockIdx.y + 1) / gridDim.y;

  // The warp's rows of B as the second operand of dz = dy·B.
  uint32_t b[kWarpCols / 16][2][2];
#pragma unroll
  for (int k = 0; k < kWarpCols / 16; ++k)
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp * kWarpCols + k * 16 + h * 8 + lane % 4 * 2;
        const bf16* p = a.b + (s.col + row) * a.ld_b + s.z_col + t * 8 + lane / 4;
        b[k][t][h] = row < s.cols ? static_cast<uint32_t>(p[0].bits) | static_cast<uint32_t>(p[a.ld_b].bits) << 16 : 0u;
      }

  auto fetch = [&](int64_t tile, int stage) {
    if (tile < last) {
      const uint32_t to = shared_address(space + stage * kTileBytes);
#pragma unroll
      for (int i = 0; i < kTile * kSlice / 8 / (kWarps * 32); ++i) {
        const int chunk = i * kWarps * 32 + thread, row = chunk / (kSlice / 8), c = chunk % (kSlice / 8);
        const int64_t token = tile * kTile + row;
        const bool inside = token < a.tokens && c * 8 < s.cols;
        // Chunks of 16 bytes change places within a row, so that a column of them lies in different banks.
        copy_async(to + row * kSlice * 2 + ((c ^ (row & 7)) * 16),
                   inside ? a.dy + token * a.ld_dy + s.col + c * 8 : a.dy, inside);
      }
      if (thread < kTile * 2) {
        const int row = thread / 2, c = thread % 2;
        const int64_t token = tile * kTile + row;
        copy_async(shared_address(z_space + stage * kZBytes) + row * 32 + ((c ^ (row >> 2 & 1)) * 16),
                   token < a.tokens ? a.z + token * a.ld_z + s.z_col + c * 8 : a.z, token < a.tokens);
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  auto finish = [&](int64_t tile) {  // the sum over the warps, one element a thread of the first half
    if (thread >= kTile * kRank) return;
    const float* from = sums + (tile & 1) * kSumFloats + thread;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kRank];
    const int64_t token = tile * kTile + thread / kRank;
    if (token < a.tokens) a.dz_parts[(blockIdx.x * a.tokens + token) * kRank + thread % kRank] = total;
  };

  float db[kWarpCols / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(first + i, i);
  int stage = 0;
  for (int64_t tile = first; tile < last; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();
    fetch(tile + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
    if (tile > first) finish(tile - 1);
    const uint32_t dy_at = shared_address(space + stage * kTileBytes) + lane % 16 * kSlice * 2;
    const int mine = warp * (kWarpCols / 8) + lane / 16, turn = lane & 7;
    uint32_t z[4];
    {
      const int row = (lane & 7) + (lane >> 4) * 8, c = lane >> 3 & 1;
      load_transposed(z, shared_address(z_space + stage * kZBytes) + row * 32 + ((c ^ (row >> 2 & 1)) * 16));
    }
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
    float* mine_sums = sums + (tile & 1) * kSumFloats + warp * kTile * kRank + lane / 4 * kRank + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      *reinterpret_cast<float2*>(mine_sums + t * 8) = make_float2(dz[t][0], dz[t][1]);
      *reinterpret_cast<float2*>(mine_sums + 8 * kRank + t * 8) = make_float2(dz[t][2], dz[t][3]);
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  __syncthreads();
  if (last > first) finish(last - 1);
  // db is [rank][column] here: the second kernel turns it.
#pragma unroll
  for (int t = 0; t < kWarpCols / 8; ++t) {
    const int col = warp * kWarpCols + t * 8 + lane % 4 * 2;
    if (col >= s.cols) continue;
    float* to = a.db_parts + (blockIdx.y * kRank + lane / 4) * a.n + s.col + col;
    *reinterpret_cast<float2*>(to) = make_float2(db[t][0], db[t][1]);
    *reinterpret_cast<float2*>(to + 8 * a.n) = make_float2(db[t][2], db[t][3]);
  }
}

// The same with SwiGLU's backward before it: a slice is 512 columns of gate and the 512 of up beside them. A warp turns
// its 64 columns of gate, up and dy into dgate, dup and y where they lie in shared memory, stores the first two, and
// multiplies all three.
constexpr int kActCols = 32, kActSlice = kWarps * kActCols, kActStages = 3;
constexpr int kActTile = kTile * kActSlice * 2, kActStage = 3 * (kActTile + kZBytes);
constexpr int kActSums = 2 * kWarps * kTile * kRank;
constexpr int kActShared = kActStages * kActStage + 2 * kActSums * static_cast<int>(sizeof(float));

struct ActArgs {
  const bf16 *x, *dy, *b, *z, *dz;
  bf16* dx;
  float *dz_parts, *db_parts, *da_parts;  // [gate, up][slices][tokens][16], [splits][16][2 cols], [splits][16][cols]
  int64_t tokens, cols, ld_x, ld_dy, ld_dx, ld_b, ld_z, ld_dz;
  int32_t z_col[2];
};

__global__ __launch_bounds__(kWarps * 32, 1) void act_lora_grad_kernel(const __grid_constant__ ActArgs a) {
  next_may_start();
  extern __shared__ __align__(128) unsigned char space[];
  auto* sums = reinterpret_cast<float*>(space + kActStages * kActStage);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kActSlice;
  const int cols = static_cast<int>(a.cols - col < kActSlice ? a.cols - col : kActSlice);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t tiles = (a.tokens + kTile - 1) / kTile, first = tiles * blockIdx.y / gridDim.y,
                last = tiles * (blockIdx.y + 1) / gridDim.y;

  uint32_t b[2][kActCols / 16][2][2];  // gate's and up's rows of B, as the second operand of dz = dx·B
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int k = 0; k < kActCols / 16; ++k)
#pragma unroll
      for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp * kActCols + k * 16 + h * 8 + lane % 4 * 2;
          const bf16* q = a.b + (p * a.cols + col + row) * a.ld_b + a.z_col[p] + t * 8 + lane / 4;
          b[p][k][t][h] =
              row < cols ? static_cast<uint32_t>(q[0].bits) | static_cast<uint32_t>(q[a.ld_b].bits) << 16 : 0u;
        }

  // A stage: gate, up, dy, then the ranks of gate's z, up's z and the next adapter's dz.
  auto fetch = [&](int64_t tile, int stage) {
    if (tile < last) {
      const uint32_t to = shared_address(space + stage * kActStage);
#pragma unroll
      for (int i = 0; i < kTile * kActSlice / 8 / (kWarps * 32); ++i) {
        const int chunk = i * kWarps * 32 + thread, row = chunk / (kActSlice / 8), c = chunk % (kActSlice / 8);
        const int64_t token = tile * kTile + row;
        const bool inside = token < a.tokens && c * 8 < cols;
        const uint32_t at = to + row * kActSlice * 2 + ((c ^ (row & 7)) * 16);
        const bf16* gate = a.x + token * a.ld_x + col + c * 8;
        copy_async(at, inside ? gate : a.x, inside);
        copy_async(at + kActTile, inside ? gate + a.cols : a.x, inside);
        copy_async(at + 2 * kActTile, inside ? a.dy + token * a.ld_dy + col + c * 8 : a.dy, inside);
      }
      if (thread < 3 * kTile * 2) {
        const int which = thread / (kTile * 2), row = thread / 2 % kTile, c = thread % 2;
        const int64_t token = tile * kTile + row;
        const bool inside = token < a.tokens && (which < 2 || a.dz != nullptr);
        const bf16* from =
            which < 2 ? a.z + token * a.ld_z + a.z_col[which & 1] + c * 8 : a.dz + token * a.ld_dz + c * 8;
        copy_async(to + 3 * kActTile + which * kZBytes + row * 32 + ((c ^ (row >> 2 & 1)) * 16), inside ? from : a.z,
                   inside);
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  static_assert(kWarps * 32 == 2 * kTile * kRank);
  auto finish = [&](int64_t tile) {  // one half of the threads sums gate's, the other up's
    const int p = thread / (kTile * kRank), at = thread % (kTile * kRank);
    const int64_t token = tile * kTile + at / kRank;
    const float* from = sums + (tile & 1) * kActSums + p * kWarps * kTile * kRank + at;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kRank];
    if (token < a.tokens)
      a.dz_parts[((static_cast<int64_t>(p) * gridDim.x + blockIdx.x) * a.tokens + token) * kRank + at % kRank] = total;
  };

  float db[2][kActCols / 8][4] = {}, da[kActCols / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kActStages - 1; ++i) fetch(first + i, i);
  int stage = 0;
  for (int64_t tile = first; tile < last; ++tile) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kActStages - 2));
    __syncthreads();
    fetch(tile + kActStages - 1, stage == 0 ? kActStages - 1 : stage - 1);
    if (tile > first) finish(tile - 1);
    unsigned char* here = space + stage * kActStage;
#pragma unroll
    for (int i = 0; i < kTile / 8; ++i) {
      // Four lanes a row, 64 bytes of each matrix. Eight lanes that go to shared memory together take rows four apart,
      // whose chunks lie in different banks.
      const int row = i * 8 + (lane / 4 & 1) * 4 + lane / 8, c = warp * (kActCols / 8) + lane % 4;
      auto* at = reinterpret_cast<Raw<bf16, 8>*>(here + row * kActSlice * 2 + ((c ^ (row & 7)) * 16));
      auto* at_up = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + kActTile);
      auto* at_dy = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + 2 * kActTile);
      float g[8], u[8], d[8];
      at->unpack(g), at_up->unpack(u), at_dy->unpack(d);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float s = __fdividef(1.0f, 1.0f + __expf(-g[k])), value = g[k] * s,
                    slope = s * (1.0f + g[k] * (1.0f - s));
        const float dy = d[k];
        g[k] = dy * slope * u[k];
        d[k] = value * u[k];
        u[k] = dy * value;
      }
      const Raw<bf16, 8> dgate = Raw<bf16, 8>::pack(g), dup = Raw<bf16, 8>::pack(u);
      *at = dgate, *at_up = dup, *at_dy = Raw<bf16, 8>::pack(d);
      const int64_t token = tile * kTile + row;
      if (token < a.tokens && c * 8 < cols) {
        const int64_t to = token * a.ld_dx + col + c * 8;
        // 64 bytes of a row at a time: kept in the cache as half lines they would take a sixth of the kernel's time
        // (8,192 tokens, 12,288 columns: 479 µs, 413 so).
        store_streaming<bf16, 8>(a.dx, to, dgate);
        store_streaming<bf16, 8>(a.dx, to + a.cols, dup);
      }
    }
    __syncwarp();
    const int mine = warp * (kActCols / 8) + lane / 16, turn = lane & 7;
    const int z_row = (lane & 7) + (lane >> 4) * 8, z_chunk = lane >> 3 & 1;
    const uint32_t z_at = shared_address(here) + 3 * kActTile + z_row * 32 + ((z_chunk ^ (z_row >> 2 & 1)) * 16);
    const uint32_t rows_at = shared_address(here) + lane % 16 * kActSlice * 2;
    float* mine_sums = sums + (tile & 1) * kActSums + warp * kTile * kRank + lane / 4 * kRank + lane % 4 * 2;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      uint32_t z[4];
      load_transposed(z, z_at + p * kZBytes);
      float dz[2][4] = {};
#pragma unroll
      for (int k = 0; k < kActCols / 16; ++k) {
        const uint32_t at = rows_at + p * kActTile + (((mine + k * 2) ^ turn) * 16);
        uint32_t rows[4], columns[4];
        load_matrices(rows, at);
        load_transposed(columns, at);
        multiply_add(dz[0], rows, b[p][k][0][0], b[p][k][0][1]);
        multiply_add(dz[1], rows, b[p][k][1][0], b[p][k][1][1]);
        multiply_add(db[p][2 * k], z, columns[0], columns[1]);
        multiply_add(db[p][2 * k + 1], z, columns[2], columns[3]);
      }
      float* to = mine_sums + p * kWarps * kTile * kRank;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        *reinterpret_cast<float2*>(to + t * 8) = make_float2(dz[t][0], dz[t][1]);
        *reinterpret_cast<float2*>(to + 8 * kRank + t * 8) = make_float2(dz[t][2], dz[t][3]);
      }
    }
    uint32_t z[4];
    load_transposed(z, z_at + 2 * kZBytes);
#pragma unroll
    for (int k = 0; k < kActCols / 16; ++k) {
      uint32_t columns[4];
      load_transposed(columns, rows_at + 2 * kActTile + (((mine + k * 2) ^ turn) * 16));
      multiply_add(da[2 * k], z, columns[0], columns[1]);
      multiply_add(da[2 * k + 1], z, columns[2], columns[3]);
    }
    stage = stage + 1 == kActStages ? 0 : stage + 1;
  }
  __syncthreads();
  if (last > first) finish(last - 1);
#pragma unroll
  for (int t = 0; t < kActCols / 8; ++t) {
    const int c = warp * kActCols + t * 8 + lane % 4 * 2;
    if (c >= cols) continue;
    const int64_t row = blockIdx.y * kRank + lane / 4;
    auto put = [&](float* to, int64_t n, const float(&v)[4]) {
      *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(v[2], v[3]);
    };
    put(a.db_parts + row * 2 * a.cols + col + c, 2 * a.cols, db[0][t]);
    put(a.db_parts + row * 2 * a.cols + a.cols + col + c, 2 * a.cols, db[1][t]);
    if (a.dz != nullptr) put(a.da_parts + row * a.cols + col + c, a.cols, da[t]);
  }
}

struct SumBlock {
  int64_t col, cols, z_col;
  int32_t first, count;  // its slices
  float scale;
  float* db;
};
struct SumArgs {
  const float *dz_parts, *db_parts, *da_parts;  // da_parts: [splits][16][n_da]
  bf16* dz;
  float* da;  // [16, n_da], or null
  int64_t tokens, n, ld_dz, n_da;
  int32_t blocks, splits, accumulate, accumulate_da;
  unsigned dz_grid, db_grid;
  SumBlock block[kMostBlocks];
};

__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__global__ __launch_bounds__(256) void lora_sum_kernel(const __grid_constant__ SumArgs a) {
  previous_done();
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

int slices_of(const LoraGrad& g) {
  int n = 0;
  for (const auto& k : g.blocks) n += static_cast<int>(ceil_div(k.cols, kSlice));
  return n;
}

// Ranges of tokens: whole waves over the multiprocessors, and few parts.
int splits_of(const LoraGrad& g, int slices) {
  const int most = static_cast<int>(std::clamp<int64_t>(ceil_div(g.dy.rows, kTile) / 4, 1, 64));
  int best = 1;
  double least = 1e9;
  for (int k = 1; k <= most; ++k) {
    const double time = static_cast<double>(ceil_div(slices * k, kProcessors)) / k + 0.002 * k;
    if (time < least) least = time, best = k;
  }
  return best;
}

}  // namespace

bool lora_grad_covers(const LoraGrad& g) {
  if (g.dy.type != DType::kBF16 || g.b.type != DType::kBF16 || g.z.type != DType::kBF16 || g.dz.type != DType::kBF16)
    return false;
  if (g.dy.ld % 8 != 0 || g.z.ld % 8 != 0 || g.dz.ld % 4 != 0 || !wide(g.dy.p) || !wide(g.z.p) || !wide(g.dz.p))
    return false;
  for (const auto& k : g.blocks)
    if (k.rank != kRank || k.cols % 8 != 0 || k.col % 8 != 0 || k.z_col % 8 != 0 || !wide(k.db)) return false;
  return !g.blocks.empty() && g.blocks.size() <= kMostBlocks && slices_of(g) <= kMostSlices && g.dy.rows > 0;
}

size_t lora_grad_scratch(const LoraGrad& g) {
  return (static_cast<size_t>(slices_of(g)) * static_cast<size_t>(g.dy.rows) +
          static_cast<size_t>(splits_of(g, slices_of(g))) * static_cast<size_t>(g.dy.cols)) *
         kRank * sizeof(float);
}

void lora_grad(cudaStream_t stream, const LoraGrad& g, void* scratch) {
  const int slices = slices_of(g), splits = splits_of(g, slices);
  Args a{};
  a.dy = static_cast<const bf16*>(g.dy.p), a.b = static_cast<const bf16*>(g.b.p), a.z = static_cast<const bf16*>(g.z.p);
  a.tokens = g.dy.rows, a.n = g.dy.cols, a.ld_dy = g.dy.ld, a.ld_b = g.b.ld, a.ld_z = g.z.ld;
  a.dz_parts = static_cast<float*>(scratch);
  a.db_parts = a.dz_parts + static_cast<int64_t>(slices) * a.tokens * kRank;
  SumArgs sum{};
  sum.dz_parts = a.dz_parts, sum.db_parts = a.db_parts, sum.dz = static_cast<bf16*>(g.dz.p);
  sum.tokens = a.tokens, sum.n = a.n, sum.ld_dz = g.dz.ld, sum.blocks = static_cast<int32_t>(g.blocks.size()),
  sum.splits = splits, sum.accumulate = g.accumulate;
  int n = 0;
  for (size_t i = 0; i < g.blocks.size(); ++i) {
    const auto& k = g.blocks[i];
    sum.block[i] = {k.col, k.cols, k.z_col, n, static_cast<int32_t>(ceil_div(k.cols, kSlice)), k.scale, k.db};
    for (int64_t c = 0; c < k.cols; c += kSlice)
      a.slices[n++] = {static_cast<int32_t>(k.col + c), static_cast<int32_t>(std::min<int64_t>(kSlice, k.cols - c)),
                       static_cast<int32_t>(k.z_col)};
  }
  static const cudaError_t allowed =
      cudaFuncSetAttribute(lora_grad_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  require(allowed == cudaSuccess, "lora_grad needs 180 KB of shared memory");
  lora_grad_kernel<<<dim3(static_cast<unsigned>(slices), static_cast<unsigned>(splits)), kWarps * 32, kShared,
                     stream>>>(a);
  check_launch("lora_grad");
  sum.dz_grid = static_cast<unsigned>(ceil_div(a.tokens * (kRank / 4) * sum.blocks, 256));
  sum.db_grid = static_cast<unsigned>(ceil_div(a.n * (kRank / 4), 256));
  launch_early(lora_sum_kernel, dim3(sum.dz_grid + sum.db_grid), dim3(256), 0, stream, sum);
  check_launch("lora_grad's sums");
}

bool act_lora_grad_covers(const ActLoraGrad& g) {
  const auto& b = g.lora.blocks;
  const int64_t cols = g.act.dy.cols;
  if (g.act.kind != Activation::kSwiGlu || !lora_grad_covers(g.lora) || b.size() != 2 || b[0].col != 0 ||
      b[1].col != cols || b[0].cols != cols || b[1].cols != cols)
    return false;
  if (g.act.x.type != DType::kBF16 || g.act.dy.type != DType::kBF16 || g.act.dx.p != g.lora.dy.p ||
      g.act.dx.ld != g.lora.dy.ld)
    return false;
  if (g.dz.rows > 0 &&
      (g.dz.type != DType::kBF16 || g.dz.cols != kRank || g.dz.ld % 8 != 0 || !wide(g.dz.p) || !wide(g.da)))
    return false;
  return g.act.x.ld % 8 == 0 && g.act.dy.ld % 8 == 0 && wide(g.act.x.p) && wide(g.act.dy.p) && cols % 8 == 0;
}

size_t act_lora_grad_scratch(const ActLoraGrad& g) {
  const int64_t cols = g.act.dy.cols, slices = ceil_div(cols, kActSlice);
  return static_cast<size_t>(2 * slices * g.act.dy.rows + splits_of(g.lora, static_cast<int>(slices)) * 3 * cols) *
         kRank * sizeof(float);
}

void act_lora_grad(cudaStream_t stream, const ActLoraGrad& g, void* scratch) {
  const int64_t cols = g.act.dy.cols, tokens = g.act.dy.rows;
  const int slices = static_cast<int>(ceil_div(cols, kActSlice)), splits = splits_of(g.lora, slices);
  const bool down = g.dz.rows > 0;
  ActArgs a{};
  a.x = static_cast<const bf16*>(g.act.x.p), a.dy = static_cast<const bf16*>(g.act.dy.p),
  a.dx = static_cast<bf16*>(g.act.dx.p);
  a.b = static_cast<const bf16*>(g.lora.b.p), a.z = static_cast<const bf16*>(g.lora.z.p),
  a.dz = down ? static_cast<const bf16*>(g.dz.p) : nullptr;
  a.tokens = tokens, a.cols = cols, a.ld_x = g.act.x.ld, a.ld_dy = g.act.dy.ld, a.ld_dx = g.act.dx.ld,
  a.ld_b = g.lora.b.ld, a.ld_z = g.lora.z.ld, a.ld_dz = g.dz.ld;
  a.z_col[0] = static_cast<int32_t>(g.lora.blocks[0].z_col), a.z_col[1] = static_cast<int32_t>(g.lora.blocks[1].z_col);
  a.dz_parts = static_cast<float*>(scratch);
  a.db_parts = a.dz_parts + 2 * static_cast<int64_t>(slices) * tokens * kRank;
  a.da_parts = a.db_parts + static_cast<int64_t>(splits) * 2 * cols * kRank;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(act_lora_grad_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kActShared);
  require(allowed == cudaSuccess, "act_lora_grad needs 181 KB of shared memory");
  act_lora_grad_kernel<<<dim3(static_cast<unsigned>(slices), static_cast<unsigned>(splits)), kWarps * 32, kActShared,
                         stream>>>(a);
  check_launch("act_lora_grad");
  SumArgs sum{};
  sum.dz_parts = a.dz_parts, sum.db_parts = a.db_parts, sum.da_parts = a.da_parts;
  sum.dz = static_cast<bf16*>(g.lora.dz.p), sum.da = g.da;
  sum.tokens = tokens, sum.n = 2 * cols, sum.ld_dz = g.lora.dz.ld, sum.n_da = cols;
  sum.blocks = 2, sum.splits = splits, sum.accumulate = g.lora.accumulate, sum.accumulate_da = g.accumulate_da;
  for (int i = 0; i < 2; ++i) {
    const auto& k = g.lora.blocks[static_cast<size_t>(i)];
    sum.block[i] = {k.col, k.cols, k.z_col, i * slices, slices, k.scale, k.db};
  }
  sum.dz_grid = static_cast<unsigned>(ceil_div(2 * tokens * (kRank / 4), 256));
  sum.db_grid = static_cast<unsigned>(ceil_div(2 * cols * (kRank / 4), 256));
  const auto da_grid = down ? static_cast<unsigned>(ceil_div(cols * (kRank / 4), 256)) : 0u;
  launch_early(lora_sum_kernel, dim3(sum.dz_grid + sum.db_grid + da_grid), dim3(256), 0, stream, sum);
  check_launch("act_lora_grad's sums");
}

}  // namespace mxt::kernels::cuda
