// SwiGLU and the adapters beside it, forward and backward (ActLora and ActLoraGrad of api.h). A block takes a slice of
// 512 columns of gate and the 512 of up beside them, and tiles of 16 tokens. What is
// wanted of a tile is made where it lies in shared memory; then each warp multiplies its 32 columns of all 16 rows, or
// above rank 16 more columns with 16 of the ranks. Backward at rank 32 a slice has 256 columns: what registers hold.
#include <algorithm>

#include "kernels/cuda/lora.h"
#include "kernels/cuda/lora_parts.cuh"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr float kMostSlope = 1.1f;  // silu'(x) is at most 1.0998; |silu(x)| is at most |x|
static_assert(kWarps == kTile);     // a row a warp

constexpr int stage_bytes(int tiles, int ranks, int limits) {
  return (tiles + ranks + limits * kTile * 4 + 127) / 128 * 128;
}

// A slice of columns: 16 bytes are a chunk.
template <int Slice>
struct ActTile {
  static constexpr int kSlice = Slice, kCols = Slice / kWarps, kBytes = kTile * Slice * 2, kChunks = Slice / 8;
};
template <int R>
struct Forward : Ranks<R> {
  using Columns = ActTile<512>;                                 // of gate or up
  static constexpr int kRows = kWarps * 32 / Columns::kChunks;  // copied at once
  static_assert(kRows == 8);  // the rows that a thread copies have their chunks in the same places
  static constexpr int kSummed = Columns::kCols * Ranks<R>::kGroups;  // columns, for 16 ranks of z: a warp's
  static constexpr int kStages = 4, kStage = stage_bytes(2 * Columns::kBytes, 0, 2);
  static constexpr int kSums = kWarps / Ranks<R>::kGroups * kTile * Ranks<R>::kPadded;
  static constexpr int kShared = kStages * kStage + 2 * kSums * static_cast<int>(sizeof(float));
};
template <int R>
struct Backward : Ranks<R> {
  using Columns = ActTile<(R > 16 ? 256 : 512)>;
  static constexpr int kStages = 3, kStage = stage_bytes(3 * Columns::kBytes, 3 * Ranks<R>::kTileBytes, 3);
  static constexpr int kSums = 2 * kWarps * kTile * Ranks<R>::kPadded;
  static constexpr int kShared = kStages * kStage + 2 * kSums * static_cast<int>(sizeof(float)) +
                                 2 * Columns::kSlice * static_cast<int>(sizeof(bf16));
};

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
  float *scale, *z_parts;  // [slices][tokens][rank]
  int64_t ld_a;
  int32_t tokens, cols, ld_x, ld_q;
};

template <int R>
__global__ __launch_bounds__(kWarps * 32, 1) void act_lora_kernel(const __grid_constant__ ForwardArgs a) {
  using T = Forward<R>;
  constexpr int kSlice = T::Columns::kSlice, kBytes = T::Columns::kBytes, kPadded = T::kPadded, kGroups = T::kGroups;
  allow_next_grid();
  wait_for_previous_grid();
  extern __shared__ __align__(128) unsigned char space[];
  auto* sums = reinterpret_cast<float*>(space + T::kStages * T::kStage);
  const int col = static_cast<int>(blockIdx.x) * kSlice, cols = min(a.cols - col, kSlice);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const TokenTiles<int> tiles(a.tokens, true);

  // The warp's columns of A as the second operand of z = y·Aᵀ.
  const int group = warp % kGroups, part = warp / kGroups;  // of ranks; of columns
  uint32_t right[T::kSummed / 16][2][2] = {};
#pragma unroll
  for (int k = 0; k < T::kSummed / 16; ++k)
#pragma unroll
    for (int t = 0; t < (R > 8 ? 2 : 1); ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int c = part * T::kSummed + k * 16 + h * 8 + lane % 4 * 2;
        const bf16* from = a.a + (group * 16 + t * 8 + lane / 4) * a.ld_a + col + c;
        right[k][t][h] = c < cols ? *reinterpret_cast<const uint32_t*>(from) : 0u;
      }

  // A stage: gate, up, then the limits of both. A thread copies the same 16 bytes of every eighth row.
  const int row = thread / T::Columns::kChunks, chunk = thread % T::Columns::kChunks, pack = col / 8 + chunk;
  const uint32_t place = shared_address(space) + row * kSlice * 2 + ((chunk ^ row) * 16);
  auto fetch = [&](int tile, int stage) {
    if (tile < tiles.count) {
      const uint32_t to = place + stage * T::kStage;
      const int first = tiles.token(tile);
#pragma unroll
      for (int i = 0; i < kTile / T::kRows; ++i) {
        const int token = first + row + i * T::kRows;
        const bool inside = token < a.tokens && chunk * 8 < cols;
        const uint4* gate = a.x + (inside ? token * a.ld_x + pack : 0);
        copy_16(to + i * T::kRows * kSlice * 2, gate, inside);
        copy_16(to + i * T::kRows * kSlice * 2 + kBytes, gate + a.cols / 8, inside);
      }
      if (thread < 2 * kTile) {
        const int token = first + thread % kTile;
        const bool inside = token < a.tokens;
        copy_4(shared_address(space) + stage * T::kStage + 2 * kBytes + thread * 4,
               a.limits + (inside ? token * 2 + thread / kTile : 0), inside);
      }
    }
    copies_end();
  };
  const int my_rank = thread % kPadded;
  float* parts = a.z_parts + static_cast<int64_t>(blockIdx.x) * a.tokens * R + my_rank;
  auto finish = [&](int tile) {  // the sum over the warps, element by element
#pragma unroll
    for (int e = 0; e < (kTile * kPadded + kWarps * 32 - 1) / (kWarps * 32); ++e) {
      const int at = thread + e * kWarps * 32;
      if (at >= kTile * kPadded || my_rank >= R) return;
      const float* from = sums + (tile & 1) * T::kSums + at;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps / kGroups; ++w) total += from[w * kTile * kPadded];
      const int token = tiles.token(tile) + at / kPadded;
      if (token < a.tokens) parts[token * R] = total;
    }
  };

  auto turn_row = [&](int tile, unsigned char* here) {  // a row a warp
    const float* limit = reinterpret_cast<const float*>(here + 2 * kBytes) + warp;
    const float scale = row_scale(limit[0] * limit[kTile]);
    const uint32_t inverse = inverse_pair(scale);
    const int token = tiles.token(tile) + warp;
    constexpr int kTurns = kSlice / 256;
    unsigned char* at = here + warp * kSlice * 2 + ((lane ^ (warp & 7)) * 16);
    Raw<bf16, 8> gate[kTurns], up[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      gate[i] = *reinterpret_cast<Raw<bf16, 8>*>(at + i * 512),
      up[i] = *reinterpret_cast<Raw<bf16, 8>*>(at + i * 512 + kBytes);
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
    for (int k = 0; k < T::kSummed / 16; ++k) {
      uint32_t rows[4];
      const int c = part * (T::kSummed / 8) + lane / 16 + k * 2;
      load_matrices(rows, shared_address(here) + lane % 16 * kSlice * 2 + ((c ^ (lane & 7)) * 16));
      multiply_add(z[0], rows, right[k][0][0], right[k][0][1]);
      multiply_add(z[1], rows, right[k][1][0], right[k][1][1]);
    }
    float* to = sums + (tile & 1) * T::kSums + part * kTile * kPadded + lane / 4 * kPadded + group * 16 + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      *reinterpret_cast<float2*>(to + t * 8) = make_float2(z[t][0], z[t][1]);
      *reinterpret_cast<float2*>(to + 8 * kPadded + t * 8) = make_float2(z[t][2], z[t][3]);
    }
  };
  auto here = [&](int tile) { return space + tile % T::kStages * T::kStage; };
  auto begin = [&](int tile) {
    copies_wait<1>();
    __syncthreads();
    fetch(tile + 2, (tile + 2) % T::kStages);
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
  // [gate, up][slices][tokens][rank], [splits][rank][2 cols], [splits][rank][cols]
  float *dz_parts, *db_parts, *da_parts;
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

template <int R, bool Held>
__global__ __launch_bounds__(kWarps * 32, 1) void act_lora_grad_kernel(const __grid_constant__ ActArgs a) {
  using T = Backward<R>;
  using Columns = typename T::Columns;
  constexpr int kSlice = Columns::kSlice, kBytes = Columns::kBytes, kCols = Columns::kCols, kPadded = T::kPadded,
                kGroups = T::kGroups;
  allow_next_grid();
  extern __shared__ __align__(128) unsigned char space[];
  auto* sums = reinterpret_cast<float*>(space + T::kStages * T::kStage);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kSlice;
  const int cols = static_cast<int>(a.cols - col < kSlice ? a.cols - col : kSlice);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  // Registers are short here: counted in 32 bits, and with the loads of both halves of a row ahead, the loop has an
  // eighth fewer instructions but keeps 24 bytes in memory, and takes 5 % (held) to 10 % longer.
  const TokenTiles<int64_t> tiles(a.tokens, true);

  // The columns' scales, powers of two and so exact in bf16: gate's, then up's.
  auto* channels = reinterpret_cast<bf16*>(sums + 2 * T::kSums);
  float most_gate = 0, most_up = 0;
  if constexpr (Held) {
    for (int i = thread; i < 2 * kSlice; i += kWarps * 32) {
      const int c = i % kSlice;
      channels[i] = from_float<bf16>(c < cols ? a.channel[i / kSlice * a.cols + col + c] : 0.0f);
    }
    most_gate = a.most_of_channel[0], most_up = a.most_of_channel[1];
  }

  uint32_t b[2][kCols / 16][2 * kGroups][2] = {};  // gate's and up's rows of B, as the second operand of dz = dx·B
#pragma unroll
  for (int p = 0; p < 2; ++p)
#pragma unroll
    for (int k = 0; k < kCols / 16; ++k)
#pragma unroll
      for (int t = 0; t < R / 8; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = warp * kCols + k * 16 + h * 8 + lane % 4 * 2;
          const bf16* q = a.b + (p * a.cols + col + row) * a.ld_b + a.z_col[p] + t * 8 + lane / 4;
          b[p][k][t][h] =
              row < cols ? static_cast<uint32_t>(q[0].bits) | static_cast<uint32_t>(q[a.ld_b].bits) << 16 : 0u;
        }

  // A stage: gate, up, dy, then the ranks of gate's z, up's z and the next adapter's dz.
  auto fetch = [&](int64_t tile, int stage) {
    if (tile < tiles.count) {
      const uint32_t to = shared_address(space + stage * T::kStage);
#pragma unroll
      for (int i = 0; i < kTile * kSlice / 8 / (kWarps * 32); ++i) {
        const int chunk = i * kWarps * 32 + thread, row = chunk / (kSlice / 8), c = chunk % (kSlice / 8);
        const int64_t token = tiles.token(tile) + row;
        const bool inside = token < a.tokens && c * 8 < cols;
        const uint32_t at = to + row * kSlice * 2 + ((c ^ (row & 7)) * 16);
        const bf16* gate = a.x + token * a.ld_x + col + c * 8;
        copy_16(at, inside ? gate : a.x, inside);
        copy_16(at + kBytes, inside ? gate + a.cols : a.x, inside);
        copy_16(at + 2 * kBytes, inside ? a.dy + token * a.ld_dy + col + c * 8 : a.dy, inside);
      }
      constexpr int kOfRanks = 3 * kTile * Ranks<R>::kChunks;
      if (thread < kOfRanks) {
        const int which = thread / (kTile * Ranks<R>::kChunks), row = thread / Ranks<R>::kChunks % kTile,
                  c = thread % Ranks<R>::kChunks;
        const int64_t token = tiles.token(tile) + row;
        const bool inside = token < a.tokens && (which < 2 || a.dz != nullptr) && c * 8 < R;
        const bf16* from =
            which < 2 ? a.z + token * a.ld_z + a.z_col[which & 1] + c * 8 : a.dz + token * a.ld_dz + c * 8;
        copy_16(to + 3 * kBytes + which * T::kTileBytes + Ranks<R>::place(row, c) * 16, inside ? from : a.z, inside);
      } else if (Held && thread < kOfRanks + 3 * kTile) {
        const int i = thread - kOfRanks, which = i / kTile;
        const int64_t token = tiles.token(tile) + i % kTile;
        const bool inside = token < a.tokens;
        const float* from = which < 2 ? a.limits + token * 2 + which : a.largest + token;
        copy_4(to + 3 * (kBytes + T::kTileBytes) + i * 4, inside ? from : a.limits, inside);
      }
    }
    copies_end();
  };
  auto finish = [&](int64_t tile) {  // gate's elements, then up's
#pragma unroll
    for (int e = 0; e < 2 * kTile * kPadded / (kWarps * 32); ++e) {
      const int i = thread + e * kWarps * 32, p = i / (kTile * kPadded), at = i % (kTile * kPadded);
      const int64_t token = tiles.token(tile) + at / kPadded;
      const float* from = sums + (tile & 1) * T::kSums + p * kWarps * kTile * kPadded + at;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += from[w * kTile * kPadded];
      if (token < a.tokens && (R == kPadded || at % kPadded < R))
        a.dz_parts[((static_cast<int64_t>(p) * gridDim.x + blockIdx.x) * a.tokens + token) * R + at % kPadded] = total;
    }
  };

  float db[2][kCols / 8][kGroups][4] = {}, da[kCols / 8][kGroups][4] = {};
  auto turn_rows = [&](int64_t tile, unsigned char* here) {
#pragma unroll
    for (int i = 0; i < kSlice / 256; ++i) {
      // Held: a row a warp, eight columns a lane. Else a warp's own columns, 64 or 32 bytes of a row: eight lanes that
      // go to shared memory together take rows four or two apart, whose chunks lie in different banks.
      const int of_own =
          kCols == 32 ? i * 8 + (lane / 4 & 1) * 4 + lane / 8 : lane / 16 * 8 + (lane / 8 & 1) + (lane / 2 & 3) * 2;
      const int row = Held ? warp : of_own, c = Held ? i * 32 + lane : warp * (kCols / 8) + lane % (kCols / 8);
      auto* at = reinterpret_cast<Raw<bf16, 8>*>(here + row * kSlice * 2 + ((c ^ (row & 7)) * 16));
      auto* at_up = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + kBytes);
      auto* at_dy = reinterpret_cast<Raw<bf16, 8>*>(reinterpret_cast<unsigned char*>(at) + 2 * kBytes);
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
        const float* limit = reinterpret_cast<const float*>(here + 3 * (kBytes + T::kTileBytes)) + row;
        const float scale =
            row_scale(limit[2 * kTile] * fmaxf(kMostSlope * limit[kTile] * most_gate, limit[0] * most_up));
        const uint32_t inverse = inverse_pair(scale);
        const auto* of_gate = reinterpret_cast<const Raw<bf16, 8>*>(channels) + c;
        uint8_t* to = a.q + token * a.ld_q + col + c * 8;
        auto hold = [&](uint8_t* at_q, const Raw<bf16, 8>& v, const Raw<bf16, 8>& scales) {
          *reinterpret_cast<uint2*>(at_q) = eight_e4m3(multiply(v, multiply(scales, inverse)));
        };
        hold(to, dgate, of_gate[0]);
        hold(to + a.cols, dup, of_gate[Columns::kChunks]);
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
    const int mine = warp * (kCols / 8) + lane / 16, turn = lane & 7;
    const uint32_t z_at = shared_address(here) + 3 * kBytes;
    const auto load_ranks = [&](uint32_t(&z)[kGroups][4], int which) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        load_transposed(z[g], z_at + which * T::kTileBytes +
                                  Ranks<R>::place((lane & 7) + (lane >> 4) * 8, 2 * g + (lane >> 3 & 1)) * 16);
    };
    const uint32_t rows_at = shared_address(here) + lane % 16 * kSlice * 2;
    float* mine_sums = sums + (tile & 1) * T::kSums + warp * kTile * kPadded + lane / 4 * kPadded + lane % 4 * 2;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      uint32_t z[kGroups][4];
      load_ranks(z, p);
      float dz[2 * kGroups][4] = {};
#pragma unroll
      for (int k = 0; k < kCols / 16; ++k) {
        const uint32_t at = rows_at + p * kBytes + (((mine + k * 2) ^ turn) * 16);
        uint32_t rows[4], columns[4];
        load_matrices(rows, at);
        load_transposed(columns, at);
#pragma unroll
        for (int t = 0; t < 2 * kGroups; ++t) multiply_add(dz[t], rows, b[p][k][t][0], b[p][k][t][1]);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_add(db[p][2 * k][g], z[g], columns[0], columns[1]);
          multiply_add(db[p][2 * k + 1][g], z[g], columns[2], columns[3]);
        }
      }
      float* to = mine_sums + p * kWarps * kTile * kPadded;
#pragma unroll
      for (int t = 0; t < 2 * kGroups; ++t) {
        *reinterpret_cast<float2*>(to + t * 8) = make_float2(dz[t][0], dz[t][1]);
        *reinterpret_cast<float2*>(to + 8 * kPadded + t * 8) = make_float2(dz[t][2], dz[t][3]);
      }
    }
    uint32_t z[kGroups][4];
    load_ranks(z, 2);
#pragma unroll
    for (int k = 0; k < kCols / 16; ++k) {
      uint32_t columns[4];
      load_transposed(columns, rows_at + 2 * kBytes + (((mine + k * 2) ^ turn) * 16));
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        multiply_add(da[2 * k][g], z[g], columns[0], columns[1]);
        multiply_add(da[2 * k + 1][g], z[g], columns[2], columns[3]);
      }
    }
  };
  static_assert(T::kStages == 3);
  int now = 0, next = 1, before = 2;  // stages
  auto advance = [&] {
    const int first_of_all = before;
    before = now, now = next, next = first_of_all;
  };
  auto here = [&](int stage) { return space + stage * T::kStage; };
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
  for (int t = 0; t < kCols / 8; ++t) {
    const int c = warp * kCols + t * 8 + lane % 4 * 2;
    if (c >= cols) continue;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t row = static_cast<int64_t>(blockIdx.y) * R + g * 16 + lane / 4;
      auto put = [&](float* to, int64_t n, const float(&v)[4]) {
        *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
        if (R > 8) *reinterpret_cast<float2*>(to + 8 * n) = make_float2(v[2], v[3]);
      };
      put(a.db_parts + row * 2 * a.cols + col + c, 2 * a.cols, db[0][t][g]);
      put(a.db_parts + row * 2 * a.cols + a.cols + col + c, 2 * a.cols, db[1][t][g]);
      if (a.dz != nullptr) put(a.da_parts + row * a.cols + col + c, a.cols, da[t][g]);
    }
  }
}

}  // namespace

bool act_lora_covers(const ActLora& g) {
  const int64_t rank = g.a.rows;
  if ((rank != 8 && rank != 16 && rank != 32) || size_t{Forward<16>::kShared} > device::card().shared) return false;
  const int64_t cols = g.act.y.cols;
  return g.act.kind == Activation::kSwiGlu && g.act.x.type == DType::kBF16 && g.a.type == DType::kBF16 &&
         g.z.type == DType::kBF16 && g.z.cols == rank && cols % 8 == 0 && g.act.x.ld % 8 == 0 && wide(g.act.x.p) &&
         g.a.ld % 2 == 0 && wide(g.a.p) && g.z.ld % 4 == 0 && wide(g.z.p) && g.act.held.q.type == DType::kF8E4M3 &&
         g.act.held.q.ld % 8 == 0 && wide(g.act.held.q.p) && g.act.x.rows > 0 && packs_in_32_bits(g.act.x) &&
         packs_in_32_bits(g.act.held.q);
}

size_t act_lora_scratch(const ActLora& g) {
  return static_cast<size_t>(ceil_div(g.act.y.cols, Forward<16>::Columns::kSlice) * g.act.x.rows * g.a.rows) *
         sizeof(float);
}

void act_lora(cudaStream_t stream, const ActLora& g, void* scratch) {
  const int slices = static_cast<int>(ceil_div(g.act.y.cols, Forward<16>::Columns::kSlice));
  ForwardArgs a{};
  a.x = static_cast<const uint4*>(g.act.x.p), a.a = static_cast<const bf16*>(g.a.p), a.limits = g.row_absmax;
  a.q = static_cast<uint2*>(g.act.held.q.p), a.scale = g.act.held.scale, a.z_parts = static_cast<float*>(scratch);
  a.tokens = static_cast<int32_t>(g.act.x.rows), a.cols = static_cast<int32_t>(g.act.y.cols);
  a.ld_x = packs_of(g.act.x), a.ld_q = packs_of(g.act.held.q), a.ld_a = g.a.ld;
  with_rank(g.a.rows, [&](auto r) {
    const auto kernel = act_lora_kernel<r.value>;
    constexpr int kShared = Forward<r.value>::kShared;
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) == cudaSuccess,
            "act_lora needs 161 KB of shared memory");
    launch_dependent(kernel, dim3(static_cast<unsigned>(slices), static_cast<unsigned>(lora_splits(a.tokens, slices))),
                     dim3(kWarps * 32), kShared, stream, a);
  });
  check_launch("act_lora");
  SumArgs sum{};
  sum.dz_parts = a.z_parts, sum.dz = static_cast<bf16*>(g.z.p), sum.tokens = g.act.x.rows, sum.ld_dz = g.z.ld;
  sum.blocks = 1, sum.block[0] = {0, 0, 0, 0, slices, 1.0f, nullptr};
  add_parts(stream, sum, g.a.rows);
}

bool act_lora_grad_covers(const ActLoraGrad& g) {
  const auto& b = g.lora.blocks;
  if (!lora_grad_covers(g.lora, g.held.q.p != nullptr ? 32 : 16)) return false;
  const size_t shared = with_rank(b[0].rank, [](auto r) -> size_t { return Backward<r.value>::kShared; });
  if (shared > device::card().shared) return false;
  const int64_t cols = g.act.dy.cols;
  if (g.act.kind != Activation::kSwiGlu || b.size() != 2 || b[0].col != 0 || b[1].col != cols || b[0].cols != cols ||
      b[1].cols != cols)
    return false;
  if (g.act.x.type != DType::kBF16 || g.act.dy.type != DType::kBF16 || g.act.dx.p != g.lora.dy.p ||
      g.act.dx.ld != g.lora.dy.ld)
    return false;
  if (g.dz.rows > 0 &&
      (g.dz.type != DType::kBF16 || g.dz.cols != b[0].rank || g.dz.ld % 8 != 0 || !wide(g.dz.p) || !wide(g.da)))
    return false;
  if (g.held.q.p != nullptr && (g.held.q.type != DType::kF8E4M3 || g.held.q.ld % 8 != 0 || !wide(g.held.q.p)))
    return false;
  return g.act.x.ld % 8 == 0 && g.act.dy.ld % 8 == 0 && wide(g.act.x.p) && wide(g.act.dy.p) && cols % 8 == 0;
}

static int64_t backward_slice(int64_t rank) {
  return with_rank(rank, [](auto r) -> int64_t { return Backward<r.value>::Columns::kSlice; });
}

size_t act_lora_grad_scratch(const ActLoraGrad& g) {
  const int64_t cols = g.act.dy.cols, rank = g.lora.blocks[0].rank, slices = ceil_div(cols, backward_slice(rank));
  return static_cast<size_t>(2 * slices * g.act.dy.rows +
                             lora_splits(g.act.dy.rows, static_cast<int>(slices)) * 3 * cols + 1) *
         static_cast<size_t>(rank) * sizeof(float);  // the one more: the largest scales
}

void act_lora_grad(cudaStream_t stream, const ActLoraGrad& g, void* scratch) {
  const int64_t cols = g.act.dy.cols, tokens = g.act.dy.rows, rank = g.lora.blocks[0].rank;
  const int slices = static_cast<int>(ceil_div(cols, backward_slice(rank))), splits = lora_splits(tokens, slices);
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
  a.db_parts = a.dz_parts + 2 * static_cast<int64_t>(slices) * tokens * rank;
  a.da_parts = a.db_parts + static_cast<int64_t>(splits) * 2 * cols * rank;
  const bool held = g.held.q.p != nullptr;
  if (held) {
    float* most = a.da_parts + static_cast<int64_t>(splits) * cols * rank;
    a.channel = g.held.channel, a.most_of_channel = most, a.limits = g.row_absmax, a.largest = g.largest;
    a.q = static_cast<uint8_t*>(g.held.q.p), a.scale = g.held.scale, a.ld_q = g.held.q.ld;
    largest_channels<<<2, 1024, 0, stream>>>(g.held.channel, cols, most);
  }
  with_rank(rank, [&](auto r) {
    auto kernel = act_lora_grad_kernel<r.value, true>;
    if constexpr (r.value <= 16)
      if (!held) kernel = act_lora_grad_kernel<r.value, false>;
    constexpr int kShared = Backward<r.value>::kShared;
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) == cudaSuccess,
            "act_lora_grad needs 216 KB of shared memory");
    kernel<<<dim3(static_cast<unsigned>(slices), static_cast<unsigned>(splits)), kWarps * 32, kShared, stream>>>(a);
  });
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
  add_parts(stream, sum, rank);
}

}  // namespace mxt::kernels::cuda
