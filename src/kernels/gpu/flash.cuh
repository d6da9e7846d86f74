// Products of 16 × 16 tiles on the matrix units, one warp (wavefront) each: what a lane holds of operands and results,
// on CUDA (mma.sync m16n8k16, bf16) and on gfx942 (v_mfma_f32_16x16x16_bf16). A result tile's element e of a lane lies
// in row row_of(slot_of(e)) and column column_of(e).
#pragma once

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/random.cuh"
#if !defined(__HIP__)
#include "kernels/gpu/mma.cuh"
#endif

namespace mxt::kernels::MXT_GPU_NS {

// Elements between rows of a shared tile: 16 bytes more than its width, so that a column of chunks lies in different
// banks.
__host__ __device__ constexpr int leading(int width) { return width + 8; }

#if defined(__HIP__)
constexpr int kElements = 4, kRows = 4, kTurn = 16 * 20;
__device__ __forceinline__ int lane_id() { return threadIdx.x % kWarp; }
__device__ __forceinline__ constexpr int slot_of(int e) { return e; }
__device__ __forceinline__ int row_of(int slot) { return lane_id() / 16 * 4 + slot; }
__device__ __forceinline__ int column_of(int) { return lane_id() % 16; }
__device__ __forceinline__ bool first_column() { return lane_id() % 16 == 0; }
constexpr int kLanesOfARow = 16, kBeside = 1;  // elements of a lane that lie side by side

typedef short Fragment __attribute__((ext_vector_type(4)));  // k = 4·(lane/16) + i of row lane%16
typedef float Four __attribute__((ext_vector_type(4)));

__device__ __forceinline__ Fragment along(const uint16_t* tile, int ld) {
  return *reinterpret_cast<const Fragment*>(tile + lane_id() % 16 * ld + lane_id() / 16 * 4);
}
__device__ __forceinline__ Fragment load_left(const uint16_t* tile, int ld) { return along(tile, ld); }
__device__ __forceinline__ Fragment load_right(const uint16_t* tile, int ld) { return along(tile, ld); }
__device__ __forceinline__ Fragment load_right_turned(const uint16_t* tile, int ld) {
  const uint16_t* p = tile + lane_id() / 16 * 4 * ld + lane_id() % 16;
  return Fragment{static_cast<short>(p[0]), static_cast<short>(p[ld]), static_cast<short>(p[2 * ld]),
                  static_cast<short>(p[3 * ld])};
}
__device__ __forceinline__ void multiply(float (&c)[kElements], const Fragment& a, const Fragment& b) {
  const Four r = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, Four{c[0], c[1], c[2], c[3]}, 0, 0, 0);
#pragma unroll
  for (int e = 0; e < 4; ++e) c[e] = r[e];
}
// A result tile as the next product's left operand: rows and columns change lanes, through shared memory.
__device__ __forceinline__ Fragment as_left(const float (&c)[kElements], uint16_t* turn) {
  sync_warp();
#pragma unroll
  for (int e = 0; e < kElements; ++e) turn[row_of(e) * 20 + column_of(e)] = from_float<bf16>(c[e]).bits;
  sync_warp();
  return along(turn, 20);
}
#else
constexpr int kElements = 8, kRows = 2, kTurn = 8;
__device__ __forceinline__ int lane_id() { return threadIdx.x % kWarp; }
__device__ __forceinline__ constexpr int slot_of(int e) { return e >> 1 & 1; }
__device__ __forceinline__ int row_of(int slot) { return lane_id() / 4 + slot * 8; }
__device__ __forceinline__ int column_of(int e) { return (e >> 2) * 8 + lane_id() % 4 * 2 + (e & 1); }
__device__ __forceinline__ bool first_column() { return lane_id() % 4 == 0; }
constexpr int kLanesOfARow = 4, kBeside = 2;

struct Fragment {
  uint32_t r[4];
};

__device__ __forceinline__ Fragment load_four(const uint16_t* at) {
  Fragment f;
  load_matrices(f.r, shared_address(at));
  return f;
}
__device__ __forceinline__ Fragment load_four_turned(const uint16_t* at) {
  Fragment f;
  load_transposed(f.r, shared_address(at));
  return f;
}
// Left: rows × k, k side by side. The four 8 × 8 matrices: rows, rows + 8, then both at k + 8.
__device__ __forceinline__ Fragment load_left(const uint16_t* tile, int ld) {
  return load_four(tile + lane_id() % 16 * ld + lane_id() / 16 * 8);
}
// Right: columns × k, k side by side. The four: k and k + 8 of columns 0 to 7, then of columns 8 to 15.
__device__ __forceinline__ Fragment load_right(const uint16_t* tile, int ld) {
  const int i = lane_id() / 8;
  return load_four(tile + ((i >> 1) * 8 + lane_id() % 8) * ld + (i & 1) * 8);
}
// Right, from k × columns.
__device__ __forceinline__ Fragment load_right_turned(const uint16_t* tile, int ld) {
  const int i = lane_id() / 8;
  return load_four_turned(tile + ((i & 1) * 8 + lane_id() % 8) * ld + (i >> 1) * 8);
}
__device__ __forceinline__ void multiply(float (&c)[kElements], const Fragment& a, const Fragment& b) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    multiply_add(reinterpret_cast<float(&)[4]>(c[half * 4]), a.r, b.r[half * 2], b.r[half * 2 + 1]);
}
// The lanes of a result are those of a left operand.
__device__ __forceinline__ Fragment as_left(const float (&c)[kElements], uint16_t*) {
  return {pack_bf16(c[0], c[1]), pack_bf16(c[2], c[3]), pack_bf16(c[4], c[5]), pack_bf16(c[6], c[7])};
}
#endif

// Over the lanes that share a row.
__device__ __forceinline__ float row_absmax(float v) {
#pragma unroll
  for (int m = 1; m < kLanesOfARow; m *= 2) v = fmaxf(v, shuffle_xor(v, m));
  return v;
}
__device__ __forceinline__ float row_sum(float v) {
#pragma unroll
  for (int m = 1; m < kLanesOfARow; m *= 2) v += shuffle_xor(v, m);
  return v;
}

// Which elements of a tile dropout keeps: queries down and keys across, or keys down and queries across.
__device__ __forceinline__ void keep_rows(const AttentionDrop& d, int head, int64_t query, int64_t key,
                                          bool (&kept)[kElements]) {
#pragma unroll
  for (int e = 0; e < kElements; e += 2) {
    if (kElements == 8 && d.first_row % 2 == 0) {  // two neighbours of one draw
      const int64_t s = d.first_row + key + column_of(e);
      const uint4 w = attention_draw(d, head, d.first_row + query + row_of(slot_of(e)), s);
      kept[e] = (s % 4 == 0 ? w.x : w.z) >= d.threshold, kept[e + 1] = (s % 4 == 0 ? w.y : w.w) >= d.threshold;
    } else {
      kept[e] = attention_keeps(d, head, query + row_of(slot_of(e)), key + column_of(e));
      kept[e + 1] = attention_keeps(d, head, query + row_of(slot_of(e + 1)), key + column_of(e + 1));
    }
  }
}
__device__ __forceinline__ void keep_columns(const AttentionDrop& d, int head, int64_t query, int64_t key,
                                             bool (&kept)[kElements]) {
#pragma unroll
  for (int e = 0; e < kElements; ++e)
    kept[e] = attention_keeps(d, head, query + column_of(e), key + row_of(slot_of(e)));
}

}  // namespace mxt::kernels::MXT_GPU_NS
