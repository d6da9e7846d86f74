// SwiGLU and the adapters beside it, forward and backward (ActLora and ActLoraGrad of api.h). A block takes a slice of
// 512 columns of gate and the 512 of up beside them, and tiles of 16 tokens. What is
// wanted of a tile is made where it lies in shared memory; then each warp multiplies its 32 columns of all 16 rows.
#include <algorithm>

#include "kernels/cuda/lora.h"
#include "kernels/cuda/lora_parts.cuh"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kActCols = 32, kActSlice = kWarps * kActCols, kActTile = kTile * kActSlice * 2;
constexpr float kMostSlope = 1.1f;  // silu'(x) is at most 1.0998; |silu(x)| is at most |x|
constexpr int kActChunks = kActSlice / 8, kActRows = kWarps * 32 / kActChunks;  // of 16 bytes; rows copied at once
static_assert(kWarps == kTile);                                                 // a row a warp
static_assert(kActRows == 8);  // the rows that a thread copies have their chunks in the same places
static_assert(kWarps * 32 == 2 * kTile * kRank);

constexpr int stage_bytes(int tiles, int ranks, int limits) {
  return (tiles * kActTile + ranks * kZBytes + limits * kTile * 4 + 127) / 128 * 128;
}
constexpr int kForwardStages = 4, kForwardStage = stage_bytes(2, 0, 2), kForwardSums = kWarps * kTile * kRank;
constexpr int kForwardShared = kForwardStages * kForwardStage + 2 * kForwardSums * static_cast<int>(sizeof(float));
constexpr int kGradStages = 3, kGradStage = stage_bytes(3, 3, 3), kGradSums = 2 * kWarps * kTile * kRank;
constexpr int kGradShared = kGradStages * kGradStage + 2 * kGradSums * static_cast<int>(sizeof(float)) +
                            2 * kActSlice * static_cast<int>(sizeof(bf16));

__device__ __forceinline__ float sigmoid(float x) {
  float e, y;  // 2 ulp of fp32: far below bf16's rounding
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + e));
  return y;
}

// Of matrices in packs, the distance of two rows is in packs.
struct ForwardArgs {
  const uint4* x;  // packs of eight
  const bf16* a;
  const float* limits;     // [tokens, 2]
  uint2* q;                // packs of eight
  float *scale, *z_parts;  // [slices][tokens][16]
  int64_t ld_a;
  int32_t tokens, cols, ld_x, ld_q;
};

__global__ __launch_bounds__(kWarps * 32, 1) void act_lora_kernel(const __grid_constant__ ForwardArgs a) {
  allow_next_grid();
  wait_for_previous_grid();
  extern __shared__ __align__(128) unsigned char space[];
  auto* sums = reinterpret_cast<float*>(space + kForwardStages * kForwardStage);
  const int col = static_cast<int>(blockIdx.x) * kActSlice, cols = min(a.cols - col, kActSlice);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const TokenTiles<int> tiles(a.tokens, true);

  // The warp's columns of A as the second operand of z = y·Aᵀ.
  uint32_t right[kActCols / 16][2][2];
#pragma unroll
  for (int k = 0; k < kActCols / 16; ++k)
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int c = warp * kActCols + k * 16 + h * 8 + lane % 4 * 2;
        const bf16* from = a.a + (t * 8 + lane / 4) * a.ld_a + col + c;
        right[k][t][h] = c < cols ? *reinterpret_cast<const uint32_t*>(from) : 0u;
      }

  // A stage: gate, up, then the limits of both. A thread copies the same 16 bytes of every eighth row.
  const int row = thread / kActChunks, chunk = thread % kActChunks, pack = col / 8 + chunk;
  const uint32_t place = shared_address(space) + row * kActSlice * 2 + ((chunk ^ row) * 16);
  auto fetch = [&](int tile, int stage) {
    if (tile < tiles.count) {
      const uint32_t to = place + stage * kForwardStage;
      const int first = tiles.token(tile);
#pragma unroll
      for (int i = 0; i < kTile / kActRows; ++i) {
        const int token = first + row + i * kActRows;
        const bool inside = token < a.tokens && chunk * 8 < cols;
        const uint4* gate = a.x + (inside ? token * a.ld_x + pack : 0);
        copy_16(to + i * kActRows * kActSlice * 2, gate, inside);
        copy_16(to + i * kActRows * kActSlice * 2 + kActTile, gate + a.cols / 8, inside);
      }
      if (thread < 2 * kTile) {
        const int token = first + thread % kTile;
        const bool inside = token < a.tokens;
        copy_4(shared_address(space) + stage * kForwardStage + 2 * kActTile + thread * 4,
               a.limits + (inside ? token * 2 + thread / kTile : 0), inside);
      }
    }
    copies_end();
  };
  float* parts = a.z_parts + static_cast<int64_t>(blockIdx.x) * a.tokens * kRank + thread % kRank;
  auto finish = [&](int tile) {  // the sum over the warps, one element a thread of the first half
    if (thread >= kTile * kRank) return;
    const float* from = sums + (tile & 1) * kForwardSums + thread;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kRank];
    const int token = tiles.token(tile) + thread / kRank;
    if (token < a.tokens) parts[token * kRank] = total;
  };

  auto turn_row = [&](int tile, unsigned char* here) {  // a row a warp
    const float* limit = reinterpret_cast<const float*>(here + 2 * kActTile) + warp;
    const float scale = row_scale(limit[0] * limit[kTile]);
    const uint32_t inverse = inverse_pair(scale);
    const int token = tiles.token(tile) + warp;
    constexpr int kTurns = kActSlice / 256;
    unsigned char* at = here + warp * kActSlice * 2 + ((lane ^ (warp & 7)) * 16);
    Raw<bf16, 8> gate[kTurns], up[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      gate[i] = *reinterpret_cast<Raw<bf16, 8>*>(at + i * 512),
      up[i] = *reinterpret_cast<Raw<bf16, 8>*>(at + i * 512 + kActTile);
    uint2 q[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      float g[8], u[8];
      gate[i].unpack(g), up[i].unpack(u);
#pragma unroll
      for (int k = 0; k < 8; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
      const Raw<bf16, 8> y = Raw<bf16, 8>::pack(g);
      *reinterpret_cast<Raw<bf16, 8>*>(at + i * 512) = y;
      q[i] = eight_e4m3(multiply(y, inverse));
    }
    if (token >= a.tokens) return;
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      if ((i * 32 + lane) * 8 < cols) a.q[token * a.ld_q + col / 8 + i * 32 + lane] = q[i];
    if (blockIdx.x == 0 && lane == 0) a.scale[token] = scale;
  };
  auto multiply = [&](int tile, const unsigned char* here) {
    float z[2][4] = {};
#pragma unroll
    for (int k = 0; k < kActCols / 16; ++k) {
      uint32_t rows[4];
      const int c = warp * (kActCols / 8) + lane / 16 + k * 2;
      load_matrices(rows, shared_address(here) + lane % 16 * kActSlice * 2 + ((c ^ (lane & 7)) * 16));
      multiply_add(z[0], rows, right[k][0][0], right[k][0][1]);
      multiply_add(z[1], rows, right[k][1][0], right[k][1][1]);
    }
    float* to = sums + (tile & 1) * kForwardSums + warp * kTile * kRank + lane / 4 * kRank + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      *reinterpret_cast<float2*>(to + t * 8) = make_float2(z[t][0], z[t][1]);
      *reinterpret_cast<float2*>(to + 8 * kRank + t * 8) = make_float2(z[t][2], z[t][3]);
    }
  };
  auto here = [&](int tile) { return space + tile % kForwardStages * kForwardStage; };
  auto begin = [&](int tile) {
    copies_wait<1>();
    __syncthreads();
    fetch(tile + 2, (tile + 2) % kForwardStages);
  };
  fetch(0, 0);
  fetch(1, 1);
  begin(0);
  turn_row(0, here(0));
  // While one tile is turned, the one before is multiplied: without a branch between them, so that they run together.
  for (int tile = 1; tile < tiles.count; ++tile) {
    begin(tile);
    if (tile >= 2) finish(tile - 2);
    multiply(tile - 1, here(tile - 1));
    turn_row(tile, here(tile));
  }
  __syncthreads();
  if (tiles.count >= 2) finish(tiles.count - 2);
  multiply(tiles.count - 1, here(tiles.count - 1));
  __syncthreads();
  finish(tiles.count - 1);
}

struct ActArgs {
  const bf16 *x, *dy, *b, *z, *dz;
  bf16* dx;
  float *dz_parts, *db_parts, *da_parts;  // [gate, up][slices][tokens][16], [splits][16][2 cols], [splits][16][cols]
  int64_t tokens, cols, ld_x, ld_dy, ld_dx, ld_b, ld_z, ld_dz;
  int32_t z_col[2];
  // Held: dx as E4M3 instead of bf16.
  const float *channel, *most_of_channel, *limits, *largest;
  uint8_t* q;
  float* scale;
  int64_t ld_q;
};

// The largest scale of gate's columns, and of up's.
__global__ __launch_bounds__(1024) void largest_channels(const float* channel, int64_t cols, float* out) {
  __shared__ float space[32];
  float largest = 0;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, channel[blockIdx.x * cols + i]);
  largest = block_max(largest, space);
  if (threadIdx.x == 0) out[blockIdx.x] = largest;
}

template <bool Held>
__global__ __launch_bounds__(kWarps * 32, 1) void act_lora_grad_kernel(const __grid_constant__ ActArgs a) {
  allow_next_grid();
  extern __shared__ __align__(128) unsigned char space[];
  auto* sums = reinterpret_cast<float*>(space + kGradStages * kGradStage);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kActSlice;
  const int cols = static_cast<int>(a.cols - col < kActSlice ? a.cols - col : kActSlice);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  // Registers are short here: counted in 32 bits, and with the loads of both halves of a row ahead, the loop has an
  // eighth fewer instructions but keeps 24 bytes in memory, and takes 5 % (held) to 10 % longer.
  const TokenTiles<int64_t> tiles(a.tokens, true);

  // The columns' scales, powers of two and so exact in bf16: gate's, then up's.
  auto* channels = reinterpret_cast<bf16*>(sums + 2 * kGradSums);
  float most_gate = 0, most_up = 0;
  if constexpr (Held) {
    for (int i = thread; i < 2 * kActSlice; i += kWarps * 32) {
      const int c = i % kActSlice;
      channels[i] = from_float<bf16>(c < cols ? a.channel[i / kActSlice * a.cols + col + c] : 0.0f);
    }
    most_gate = a.most_of_channel[0], most_up = a.most_of_channel[1];
  }

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
    if (tile < tiles.count) {
      const uint32_t to = shared_address(space + stage * kGradStage);
#pragma unroll
      for (int i = 0; i < kTile * kActSlice / 8 / (kWarps * 32); ++i) {
        const int chunk = i * kWarps * 32 + thread, row = chunk / (kActSlice / 8), c = chunk % (kActSlice / 8);
        const int64_t token = tiles.token(tile) + row;
        const bool inside = token < a.tokens && c * 8 < cols;
        const uint32_t at = to + row * kActSlice * 2 + ((c ^ (row & 7)) * 16);
        const bf16* gate = a.x + token * a.ld_x + col + c * 8;
        copy_16(at, inside ? gate : a.x, inside);
        copy_16(at + kActTile, inside ? gate + a.cols : a.x, inside);
        copy_16(at + 2 * kActTile, inside ? a.dy + token * a.ld_dy + col + c * 8 : a.dy, inside);
      }
      if (thread < 3 * kTile * 2) {
        const int which = thread / (kTile * 2), row = thread / 2 % kTile, c = thread % 2;
        const int64_t token = tiles.token(tile) + row;
        const bool inside = token < a.tokens && (which < 2 || a.dz != nullptr);
        const bf16* from =
            which < 2 ? a.z + token * a.ld_z + a.z_col[which & 1] + c * 8 : a.dz + token * a.ld_dz + c * 8;
        copy_16(to + 3 * kActTile + which * kZBytes + row * 32 + ((c ^ (row >> 2 & 1)) * 16), inside ? from : a.z,
                inside);
      } else if (Held && thread < 3 * kTile * 2 + 3 * kTile) {
        const int i = thread - 3 * kTile * 2, which = i / kTile;
        const int64_t token = tiles.token(tile) + i % kTile;
        const bool inside = token < a.tokens;
        const float* from = which < 2 ? a.limits + token * 2 + which : a.largest + token;
        copy_4(to + 3 * (kActTile + kZBytes) + i * 4, inside ? from : a.limits, inside);
      }
    }
    copies_end();
  };
  auto finish = [&](int64_t tile) {  // one half of the threads sums gate's, the other up's
    const int p = thread / (kTile * kRank), at = thread % (kTile * kRank);
    const int64_t token = tiles.token(tile) + at / kRank;
    const float* from = sums + (tile & 1) * kGradSums + p * kWarps * kTile * kRank + at;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kRank];
    if (token < a.tokens)
      a.dz_parts[((static_cast<int64_t>(p) * gridDim.x + blockIdx.x) * a.tokens + token) * kRank + at % kRank] = total;
  };

  float db[2][kActCols / 8][4] = {}, da[kActCols / 8][4] = {};
  auto turn_rows = [&](int64_t tile, unsigned char* here) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Held: a row a warp, eight columns a lane. Else a warp's own 32 columns, 64 bytes of a row: eight lanes that go
      // to shared memory together take rows four apart, whose chunks lie in different banks.
      const int row = Held ? warp : i * 8 + (lane / 4 & 1) * 4 + lane / 8,
                c = Held ? i * 32 + lane : warp * (kActCols / 8) + lane % 4;
      auto* at = reinterpret_cast<Raw<bf16, 8>*>(here + row * kActSlice * 2 + ((c ^ (row & 7)) * 16));
      auto* at_up = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + kActTile);
      auto* at_dy = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + 2 * kActTile);
      float g[8], u[8], d[8];
      at->unpack(g), at_up->unpack(u), at_dy->unpack(d);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float s = sigmoid(g[k]), value = g[k] * s, slope = fmaf(value, 1.0f - s, s), dy = d[k];
        g[k] = dy * slope * u[k];
        d[k] = value * u[k];
        u[k] = dy * value;
      }
      const Raw<bf16, 8> dgate = Raw<bf16, 8>::pack(g), dup = Raw<bf16, 8>::pack(u);
      *at = dgate, *at_up = dup, *at_dy = Raw<bf16, 8>::pack(d);
      const int64_t token = tiles.token(tile) + row;
      if (token >= a.tokens || c * 8 >= cols) continue;
      if constexpr (Held) {
        const float* limit = reinterpret_cast<const float*>(here + 3 * (kActTile + kZBytes)) + row;
        const float scale =
            row_scale(limit[2 * kTile] * fmaxf(kMostSlope * limit[kTile] * most_gate, limit[0] * most_up));
        const uint32_t inverse = inverse_pair(scale);
        const auto* of_gate = reinterpret_cast<const Raw<bf16, 8>*>(channels) + c;
        uint8_t* to = a.q + token * a.ld_q + col + c * 8;
        auto hold = [&](uint8_t* at_q, const Raw<bf16, 8>& v, const Raw<bf16, 8>& scales) {
          *reinterpret_cast<uint2*>(at_q) = eight_e4m3(multiply(v, multiply(scales, inverse)));
        };
        hold(to, dgate, of_gate[0]);
        hold(to + a.cols, dup, of_gate[kActChunks]);
        if (blockIdx.x == 0 && c == 0) a.scale[token] = scale;
      } else {
        const int64_t to = token * a.ld_dx + col + c * 8;
        // Kept in the cache as half lines these would take a sixth of the kernel's time (8,192 tokens, 12,288 columns:
        // 479 µs, 413 so).
        store_streaming<bf16, 8>(a.dx, to, dgate);
        store_streaming<bf16, 8>(a.dx, to + a.cols, dup);
      }
    }
  };
  auto multiply = [&](int64_t tile, const unsigned char* here) {
    const int mine = warp * (kActCols / 8) + lane / 16, turn = lane & 7;
    const int z_row = (lane & 7) + (lane >> 4) * 8, z_chunk = lane >> 3 & 1;
    const uint32_t z_at = shared_address(here) + 3 * kActTile + z_row * 32 + ((z_chunk ^ (z_row >> 2 & 1)) * 16);
    const uint32_t rows_at = shared_address(here) + lane % 16 * kActSlice * 2;
    float* mine_sums = sums + (tile & 1) * kGradSums + warp * kTile * kRank + lane / 4 * kRank + lane % 4 * 2;
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
  };
  static_assert(kGradStages == 3);
  int now = 0, next = 1, before = 2;  // stages
  auto advance = [&] {
    const int first_of_all = before;
    before = now, now = next, next = first_of_all;
  };
  auto here = [&](int stage) { return space + stage * kGradStage; };
  fetch(0, now);
  if constexpr (Held) {
    // Whole lines of E4M3 need rows, and these a barrier: while one tile is turned, the one before is multiplied.
    for (int64_t tile = 0; tile <= tiles.count; ++tile, advance()) {
      copies_wait<0>();
      __syncthreads();
      fetch(tile + 1, next);
      if (tile >= 2) finish(tile - 2);
      if (tile > 0) multiply(tile - 1, here(before));
      if (tile < tiles.count) turn_rows(tile, here(now));
    }
  } else {
    // Each warp multiplies what it has turned itself; two tiles are under way.
    fetch(1, next);
    for (int64_t tile = 0; tile < tiles.count; ++tile, advance()) {
      copies_wait<1>();
      __syncthreads();
      fetch(tile + 2, before);
      if (tile > 0) finish(tile - 1);
      turn_rows(tile, here(now));
      __syncwarp();
      multiply(tile, here(now));
    }
  }
  __syncthreads();
  if (tiles.count > 0) finish(tiles.count - 1);
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

}  // namespace

bool act_lora_covers(const ActLora& g) {
  if (size_t{kForwardShared} > device::card().shared) return false;
  const int64_t cols = g.act.y.cols;
  return g.act.kind == Activation::kSwiGlu && g.act.x.type == DType::kBF16 && g.a.type == DType::kBF16 &&
         g.z.type == DType::kBF16 && g.a.rows == kRank && g.z.cols == kRank && cols % 8 == 0 && g.act.x.ld % 8 == 0 &&
         wide(g.act.x.p) && g.a.ld % 2 == 0 && wide(g.a.p) && g.z.ld % 4 == 0 && wide(g.z.p) &&
         g.act.held.q.type == DType::kF8E4M3 && g.act.held.q.ld % 8 == 0 && wide(g.act.held.q.p) && g.act.x.rows > 0 &&
         packs_in_32_bits(g.act.x) && packs_in_32_bits(g.act.held.q);
}

size_t act_lora_scratch(const ActLora& g) {
  return static_cast<size_t>(ceil_div(g.act.y.cols, kActSlice) * g.act.x.rows) * kRank * sizeof(float);
}

void act_lora(cudaStream_t stream, const ActLora& g, void* scratch) {
  const int slices = static_cast<int>(ceil_div(g.act.y.cols, kActSlice));
  ForwardArgs a{};
  a.x = static_cast<const uint4*>(g.act.x.p), a.a = static_cast<const bf16*>(g.a.p), a.limits = g.row_absmax;
  a.q = static_cast<uint2*>(g.act.held.q.p), a.scale = g.act.held.scale, a.z_parts = static_cast<float*>(scratch);
  a.tokens = static_cast<int32_t>(g.act.x.rows), a.cols = static_cast<int32_t>(g.act.y.cols);
  a.ld_x = packs_of(g.act.x), a.ld_q = packs_of(g.act.held.q), a.ld_a = g.a.ld;
  require(
      cudaFuncSetAttribute(act_lora_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kForwardShared) == cudaSuccess,
      "act_lora needs 161 KB of shared memory");
  launch_dependent(act_lora_kernel,
                   dim3(static_cast<unsigned>(slices), static_cast<unsigned>(lora_splits(a.tokens, slices))),
                   dim3(kWarps * 32), kForwardShared, stream, a);
  check_launch("act_lora");
  SumArgs sum{};
  sum.dz_parts = a.z_parts, sum.dz = static_cast<bf16*>(g.z.p), sum.tokens = g.act.x.rows, sum.ld_dz = g.z.ld;
  sum.blocks = 1, sum.block[0] = {0, 0, 0, 0, slices, 1.0f, nullptr};
  add_parts(stream, sum);
}

bool act_lora_grad_covers(const ActLoraGrad& g) {
  if (size_t{kGradShared} > device::card().shared) return false;
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
  if (g.held.q.p != nullptr && (g.held.q.type != DType::kF8E4M3 || g.held.q.ld % 8 != 0 || !wide(g.held.q.p)))
    return false;
  return g.act.x.ld % 8 == 0 && g.act.dy.ld % 8 == 0 && wide(g.act.x.p) && wide(g.act.dy.p) && cols % 8 == 0;
}

size_t act_lora_grad_scratch(const ActLoraGrad& g) {
  const int64_t cols = g.act.dy.cols, slices = ceil_div(cols, kActSlice);
  return static_cast<size_t>(2 * slices * g.act.dy.rows +
                             lora_splits(g.act.dy.rows, static_cast<int>(slices)) * 3 * cols + 1) *
         kRank * sizeof(float);  // the 16 floats more: the largest scales
}

void act_lora_grad(cudaStream_t stream, const ActLoraGrad& g, void* scratch) {
  const int64_t cols = g.act.dy.cols, tokens = g.act.dy.rows;
  const int slices = static_cast<int>(ceil_div(cols, kActSlice)), splits = lora_splits(tokens, slices);
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
  const bool held = g.held.q.p != nullptr;
  if (held) {
    float* most = a.da_parts + static_cast<int64_t>(splits) * cols * kRank;
    a.channel = g.held.channel, a.most_of_channel = most, a.limits = g.row_absmax, a.largest = g.largest;
    a.q = static_cast<uint8_t*>(g.held.q.p), a.scale = g.held.scale, a.ld_q = g.held.q.ld;
    largest_channels<<<2, 1024, 0, stream>>>(g.held.channel, cols, most);
  }
  const auto kernel = held ? act_lora_grad_kernel<true> : act_lora_grad_kernel<false>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kGradShared) == cudaSuccess,
          "act_lora_grad needs 216 KB of shared memory");
  kernel<<<dim3(static_cast<unsigned>(slices), static_cast<unsigned>(splits)), kWarps * 32, kGradShared, stream>>>(a);
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
  add_parts(stream, sum);
}

}  // namespace mxt::kernels::cuda
