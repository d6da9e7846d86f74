// What the kernels of adapters' gradients share: their blocks take slices of columns and tiles of 16 tokens, and
// leave parts that a second kernel adds in order.
#pragma once

#include <type_traits>

#include "kernels/gpu/async_copy.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"

namespace mxt::kernels::cuda {

inline constexpr int kWarps = 16, kTile = 16, kMostBlocks = 8;
inline constexpr int kProcessors = 132;  // multiprocessors of an H100; another number only costs time

// Ranks of an adapter as products see them: groups of 16, of which a rank of 8 fills half of one.
template <int R>
struct Ranks {
  static constexpr int kGroups = R < 16 ? 1 : R / 16, kPadded = kGroups * 16, kChunks = kPadded / 8;
  static constexpr int kTileBytes = kTile * kPadded * 2;  // z or dz of a tile of tokens
  // Where 16 bytes of a row lie in shared memory, in chunks: eight rows' same chunk in different banks.
  __host__ __device__ static constexpr int place(int row, int chunk) {
    return row * kChunks + (chunk ^ (row / (8 / kChunks) & (kChunks - 1)));
  }
};
// Calls f with the rank as a constant.
template <typename F>
auto with_rank(int64_t rank, F&& f) {
  switch (rank) {
    case 8:
      return f(std::integral_constant<int, 8>{});
    case 16:
      return f(std::integral_constant<int, 16>{});
    default:
      require(rank == 32, "an adapter's kernels want a rank of 8, 16 or 32");
      return f(std::integral_constant<int, 32>{});
  }
}

struct SumBlock {
  int64_t col, cols, z_col;
  int32_t first, count;  // its slices
  float scale;
  float* db;
};
// db_parts and da may be null: these sums are not wanted.
struct SumArgs {
  const float *dz_parts, *db_parts, *da_parts;  // da_parts: [splits][rank][n_da]
  bf16* dz;
  float* da;  // [rank, n_da], or null
  int64_t tokens, n, ld_dz, n_da;
  int32_t blocks, splits, accumulate, accumulate_da;
  unsigned dz_grid, db_grid;  // add_parts() sets them
  SumBlock block[kMostBlocks];
};

void add_parts(cudaStream_t stream, SumArgs sum, int64_t rank);
// Blocks that share a slice's tiles: whole waves over the multiprocessors, and few parts.
int lora_splits(int64_t tokens, int slices);

// The tiles of a range: every so many-th of the tokens', so that all blocks together go over them in the order in which
// the second-level cache holds them (gpu.h: row_of_block).
template <typename Int>
struct TokenTiles {
  Int first, step, count;
  __device__ TokenTiles(Int tokens, bool from_the_last) {
    const Int all = (tokens + kTile - 1) / kTile;
    step = gridDim.y, first = blockIdx.y, count = (all - first + step - 1) / step;
    if (from_the_last) first = all - 1 - first, step = -step;
  }
  __device__ Int token(Int i) const { return (first + i * step) * kTile; }
};
// Most of these kernels count tokens, and packs of eight bf16 from a matrix's first, in 32 bits: addresses in 64 were a
// quarter of their instructions.
inline bool packs_in_32_bits(const ConstMat& m) {
  return m.rows < (1 << 27) && m.rows * (m.ld / 8) < (int64_t{1} << 31);
}

inline int32_t packs_of(const ConstMat& row) { return static_cast<int32_t>(row.ld / 8); }

}  // namespace mxt::kernels::cuda
