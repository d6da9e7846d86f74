// Products in tiles of 128 × 256 results a block. Two blocks of a cluster take tiles one above the other and share the
// right operand: each asks for half of it, for both. Blocks stay and take tile after tile.
#pragma once

#include <algorithm>

#include "kernels/cuda/hopper.cuh"

namespace mxt::kernels::cuda {

inline constexpr int kTileRows = 128, kTileCols = 256;
// Blocks of a cluster. Four need 25 % less from the second-level cache, but an H100 holds 30 such clusters at a time,
// 120 of its 132 multiprocessors: 5 % slower.
inline constexpr int kTileCluster = 2, kTilePart = kTileCols / kTileCluster;
inline constexpr int kTileClusters =
    132 / kTileCluster;                         // pairs of an H100's multiprocessors; another number only costs time
inline constexpr int kTileOutBytes = 16 * 128;  // 16 rows of 64 results, on their way to memory

// Pairs of tiles, one above the other; `group` of them are gone through together, column by column.
struct TileOrder {
  int pairs, columns, group;
  __device__ __forceinline__ int tiles() const { return pairs * columns; }
};
// As many together as the second-level cache holds of their left operands (`row_bytes` a row) beside the rest, so that
// the right one is read as seldom as can be; at least as many as make a square of what runs at a time.
inline TileOrder tile_order(int64_t rows, int64_t cols, int64_t row_bytes) {
  constexpr int64_t kGroupBytes = int64_t{17} << 20, kLeastGroup = 8;
  constexpr int64_t kPairRows = int64_t{kTileCluster} * kTileRows;
  return {static_cast<int>((rows + kPairRows - 1) / kPairRows), static_cast<int>((cols + kTileCols - 1) / kTileCols),
          static_cast<int>(std::max(kLeastGroup, kGroupBytes / (kPairRows * row_bytes)))};
}

struct TilePlace {
  int pair, column;
};
__device__ __forceinline__ TilePlace place_of(int tile, const TileOrder& o) {
  const int of_group = o.group * o.columns, first = tile / of_group * o.group, in = tile % of_group;
  const int size = min(o.group, o.pairs - first);
  return {first + in % size, in / size};
}

// A warp's 16 rows of 64 results to memory, through its `out` in shared memory: one box may be written while the one
// before is still read. made(j, place, y): two rows (the second eight below) of two pairs of columns each, the second
// eight further, of the 16 columns from 16j on; `place`: where they lie within a box of rows of 128 bytes.
template <typename Made>
__device__ __forceinline__ void store_results(unsigned char* out, const CUtensorMap& map, int row, int col, int rows,
                                              int cols, int lane, const Made& made) {
  if (lane == 0) boxes_read<1>();
  __syncwarp();
  const int r = lane % 16;  // the row whose address this lane names
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const auto place = static_cast<uint32_t>(r * 128 + ((j * 2 + lane / 16) ^ (r & 7)) * 16);
    uint32_t y[4];
    made(j, place, y);
    store_matrices(shared_address(out) + place, y[0], y[1], y[2], y[3]);
  }
  written_to_shared();
  __syncwarp();
  if (lane == 0) {
    if (row < rows && col < cols) store_box(map, col, row, out);
    end_boxes();
  }
}

}  // namespace mxt::kernels::cuda
