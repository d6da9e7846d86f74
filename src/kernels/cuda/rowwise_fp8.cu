// One warpgroup asks for copies, two multiply 64 rows each; the copies for the next tile run while this one is stored.
#include <algorithm>

#include "kernels/cuda/rowwise_fp8.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tiles_128x256.cuh"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRows = kTileRows, kCols = kTileCols, kCluster = kTileCluster, kPart = kTilePart;
constexpr int kStages = 4, kThreads = 3 * 128;
constexpr int kRowBytes = 128;  // of a stage: 128 terms of E4M3, 64 of bf16
constexpr int kLeftBytes = kRows * kRowBytes, kRightBytes = kCols * kRowBytes;
constexpr int kStageBytes = kLeftBytes + kRightBytes;
constexpr int kBoxBytes = 64 * 128;  // 64 rows of 64 terms of the tail's right operand

struct HeldArgs {
  const float *a_scale, *b_scale;  // null: 1
  const bf16* bias;                // of each column; null: none
  unsigned* row_absmax;            // the bits of floats that are not negative, which order as the floats do; or null
  int row_parts, part_columns;     // of tiles
  int m, n, steps, tail_steps;     // stages of E4M3; of the tail, 64 terms each
  int tail_products;               // of 16 terms
  TileOrder order;
};

struct HeldShared {
  unsigned char a[kStages][kLeftBytes], b[kStages][kRightBytes];
  unsigned char out[8][2][kTileOutBytes];  // of each warp
  float b_scale[2][kCols];                 // of each warpgroup
  Mbarrier full[kStages], empty[kStages];
};

template <bool Down>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    held_kernel(const __grid_constant__ HeldArgs a, const __grid_constant__ CUtensorMap a_map,
                const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap tail_a_map,
                const __grid_constant__ CUtensorMap tail_b_map, const __grid_constant__ CUtensorMap c_map) {
  extern __shared__ __align__(1024) unsigned char space[];
  HeldShared& s = *reinterpret_cast<HeldShared*>(space);
  const int group = warpgroup(), rank = rank_in_cluster();
  const int tiles = a.order.tiles(), first = static_cast<int>(blockIdx.x) / kCluster,
            clusters = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) make_gates(s.full, s.empty, 2 * kCluster);  // two warpgroups of each block read
  sync_cluster();
  allow_next_grid();
  wait_for_previous_grid();
  StageRing<kStages> ring;
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      for (int tile = first; tile < tiles; tile += clusters) {
        const TilePlace at = place_of(tile, a.order);
        const int row = (at.pair * kCluster + rank) * kRows, col = at.column * kCols + rank * kPart;
        for (int k = 0; k < a.steps + a.tail_steps; ++k, ring.advance()) {
          const int i = ring.slot;
          s.empty[i].wait(ring.parity ^ 1);
          s.full[i].arrive_and_expect(kStageBytes);
          unsigned char* right = s.b[i] + rank * (kPart * kRowBytes);
          if (k < a.steps) {
            copy_box(s.a[i], a_map, k * 128, row, &s.full[i]);
            copy_box(right, b_map, k * 128, col, &s.full[i], (1 << kCluster) - 1);
          } else {
            const int t = (k - a.steps) * 64;
            copy_box(s.a[i], tail_a_map, t, row, &s.full[i]);
            if constexpr (Down) {
              for (int box = 0; box < kPart / 64; ++box)
                copy_box(right + box * kBoxBytes, tail_b_map, col + box * 64, t, &s.full[i], (1 << kCluster) - 1);
            } else {
              copy_box(right, tail_b_map, t, col, &s.full[i], (1 << kCluster) - 1);
            }
          }
        }
      }
    }
  } else {
    take_registers<240>();
    const int w = group - 1, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int my_row = thread / 32 * 16 + lane / 4;  // and eight below it
    auto release = [&](int slot) { have_read(s.empty[slot], 1 + w, kCluster); };
    for (int tile = first; tile < tiles; tile += clusters) {
      const TilePlace at = place_of(tile, a.order);
      const int row = (at.pair * kCluster + rank) * kRows + w * 64, col = at.column * kCols;
      // Asked for here, used after the last step: there every tile would wait for them.
      const float top = a.a_scale != nullptr && row + my_row < a.m ? a.a_scale[row + my_row] : 1.0f,
                  below = a.a_scale != nullptr && row + my_row + 8 < a.m ? a.a_scale[row + my_row + 8] : 1.0f;
      float right_scale[2] = {1.0f, 1.0f};
      if (a.b_scale != nullptr)
        for (int i = 0; i < 2; ++i)
          if (col + thread + i * 128 < a.n) right_scale[i] = a.b_scale[col + thread + i * 128];
      // A thread keeps the bias of every fourth pair of its warp's columns, beginning with its own, of 32 of them.
      uint32_t bias[4] = {};
      if (a.bias != nullptr)
        for (int i = 0; i < 4; ++i)
          if (const int c = col + (lane / 4 * 4 + i) * 8 + lane % 4 * 2; c < a.n)
            bias[i] = pack_bf16(to_float(a.bias[c]), c + 1 < a.n ? to_float(a.bias[c + 1]) : 0.0f);
      float d[128];
      int last = 0;
      for (int k = 0; k < a.steps; ++k, ring.advance()) {
        const int i = ring.slot;
        s.full[i].wait(ring.parity);
        const uint64_t left = across(shared_address(s.a[i]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                       right = across(shared_address(s.b[i]));
        begin_products();
#pragma unroll
        for (int c = 0; c < 4; ++c) multiply_64x256_e4m3(d, further(left, c * 32), further(right, c * 32), k + c);
        end_group();
        if (k > 0) {
          wait_groups<1>();
          release(last);
        }
        last = i;
      }
      if (a.steps == 1) sync_threads_of(1 + w, 128);  // else release() stood between: all have read the last tile's
      for (int i = 0; i < 2; ++i) s.b_scale[w][thread + i * 128] = right_scale[i];
      wait_groups<0>();
      release(last);  // and its barrier: the scales are there for all
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        const float2 b = *reinterpret_cast<const float2*>(s.b_scale[w] + j * 8 + lane % 4 * 2);
        d[j * 4] *= top * b.x, d[j * 4 + 1] *= top * b.y, d[j * 4 + 2] *= below * b.x, d[j * 4 + 3] *= below * b.y;
      }
      if (a.bias != nullptr)
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          const uint32_t pair = __shfl_sync(0xffffffffu, bias[j % 4], j / 4 * 4 + lane % 4);
          const float left = __uint_as_float(pair << 16), right = __uint_as_float(pair & 0xffff0000u);
          d[j * 4] += left, d[j * 4 + 1] += right, d[j * 4 + 2] += left, d[j * 4 + 3] += right;
        }
      for (int k = 0; k < a.tail_steps; ++k, ring.advance()) {
        const int i = ring.slot;
        s.full[i].wait(ring.parity);
        const uint64_t left = across(shared_address(s.a[i]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                       right = Down ? down(shared_address(s.b[i]), kBoxBytes) : across(shared_address(s.b[i]));
#pragma unroll 1
        for (int c = 0; c < min(4, a.tail_products - 4 * k); ++c) {
          begin_products();
          multiply_64x256<Down>(d, further(left, c * 32), further(right, c * (Down ? 2048 : 32)));
          end_group();
        }
        wait_groups<0>();
        release(i);
      }
      uint32_t largest[2] = {0, 0};  // of what is stored, in pairs
#pragma unroll
      for (int box = 0; box < 4; ++box)
        store_results(s.out[w * 4 + thread / 32][box % 2], c_map, row + thread / 32 * 16, col + box * 64, a.m, a.n,
                      lane, [&](int j, uint32_t, uint32_t(&y)[4]) {
                        const float* f = d + box * 32 + j * 8;
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                          y[i] = pack_bf16(f[i * 2], f[i * 2 + 1]);
                          largest[i % 2] = larger_size(largest[i % 2], y[i]);
                        }
                      });
      // After the copies: their fence would wait for these to arrive.
      if (a.row_absmax != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          largest[r] = larger_size(largest[r], shuffle_xor(largest[r], 1));
          largest[r] = larger_size(largest[r], shuffle_xor(largest[r], 2));
          largest[r] = larger_size(largest[r], largest[r] >> 16);
          if (lane % 4 == 0 && row + my_row + r * 8 < a.m)
            atomicMax(
                a.row_absmax + static_cast<int64_t>(row + my_row + r * 8) * a.row_parts + at.column / a.part_columns,
                largest[r] << 16);
        }
      }
    }
    if (lane == 0) boxes_read<0>();
  }
  sync_cluster();  // nobody leaves while another's copies or arrivals may still come here
}

}  // namespace

bool rowwise_fp8_gemm_covers(const Gemm& g) {
  if (!device::card().warpgroups) return false;
  const bool tail = g.tail_a.cols > 0;
  return g.a.type == DType::kF8E4M3 && g.c.type == DType::kBF16 && !g.accumulate &&
         (g.bias == nullptr || g.bias_type == DType::kBF16) && even_rows(g.a) && even_rows(g.b) && even_rows(g.c) &&
         g.a.cols > 0 && (g.row_parts == 1 || g.c.cols / g.row_parts % kCols == 0) && g.c.rows < (1 << 30) &&
         g.c.cols < (1 << 30) &&
         (!tail || (g.tail_a.type == DType::kBF16 && even_rows(g.tail_a) && even_rows(g.tail_b)));
}

void rowwise_fp8_gemm(cudaStream_t stream, const Gemm& g) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  if (g.row_absmax != nullptr)
    require(cudaMemsetAsync(g.row_absmax, 0, static_cast<size_t>(g.c.rows * g.row_parts) * sizeof(float), stream) ==
                cudaSuccess,
            "row_absmax could not be cleared");
  if (rowwise_fp8_few_covers(g)) return rowwise_fp8_few(stream, g);
  const bool tail = g.tail_a.cols > 0, down = tail && !g.tail_trans_b;
  HeldArgs a{};
  a.a_scale = g.a_scale, a.b_scale = g.b_scale, a.bias = static_cast<const bf16*>(g.bias),
  a.row_absmax = reinterpret_cast<unsigned*>(g.row_absmax);
  a.row_parts = g.row_parts, a.part_columns = static_cast<int>(ceil_div(g.c.cols / g.row_parts, kCols));
  a.m = static_cast<int>(g.c.rows), a.n = static_cast<int>(g.c.cols);
  a.steps = static_cast<int>(ceil_div(g.a.cols, 128)), a.tail_steps = static_cast<int>(ceil_div(g.tail_a.cols, 64)),
  a.tail_products = static_cast<int>(ceil_div(g.tail_a.cols, 16));
  a.order = tile_order(g.c.rows, g.c.cols, g.a.cols);
  const CUtensorMap left = boxes_of(g.a, 128, kRows), right = boxes_of(g.b, 128, kPart), out = boxes_of(g.c, 64, 16);
  const CUtensorMap tail_left = tail ? boxes_of(g.tail_a, 64, kRows) : left,
                    tail_right = tail ? boxes_of(g.tail_b, 64, down ? 64 : kPart) : right;
  const auto kernel = down ? held_kernel<true> : held_kernel<false>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(HeldShared))) == cudaSuccess,
          "products of E4M3 need 227 KB of shared memory");
  const int64_t clusters = std::min<int64_t>(static_cast<int64_t>(a.order.pairs) * a.order.columns, kTileClusters);
  launch_dependent(kernel, dim3(static_cast<unsigned>(kCluster * clusters)), dim3(kThreads), sizeof(HeldShared), stream,
                   a, left, right, tail_left, tail_right, out);
  check_launch("rowwise_fp8_gemm");
}

}  // namespace mxt::kernels::cuda
