// A tile of 128 × 128 results, of few rows, whose time is that of reading the right operand once: up to four blocks of
// a cluster take a part of the terms each, so that every multiprocessor reads, and two blocks stand on each of them. A
// warp asks for copies, two warpgroups multiply 64 rows each; the blocks' sums are added in order, through shared
// memory.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/rowwise_fp8.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRows = 128, kCols = 128, kStages = 3, kThreads = 2 * 128 + 32, kMostParts = 4;
constexpr int kRowBytes = 128;  // of a stage: 128 terms of E4M3, 64 of bf16
constexpr int kLeftBytes = kRows * kRowBytes, kRightBytes = kCols * kRowBytes, kStageBytes = kLeftBytes + kRightBytes;
constexpr int kBoxBytes = 64 * 128;  // 64 rows of 64 terms of the tail's right operand
constexpr int kBlocks = 2 * 132;     // that an H100 holds at a time; another number only costs time
constexpr int64_t kMostRows = 2 * kRows;

struct FewArgs {
  const float *a_scale, *b_scale;  // null: 1
  const bf16* bias;                // of each column; null: none
  unsigned* row_absmax;            // as in rowwise_fp8.cu
  bf16* c;
  int64_t ldc;
  int row_parts, part_columns;
  int m, n, columns;  // columns: of tiles
  int steps, tail_steps, tail_products;
};

struct FewShared {
  union {
    struct {
      unsigned char a[kStages][kLeftBytes], b[kStages][kRightBytes];
    } ring;
    float sums[kRows][kCols + 4];
  };
  float b_scale[kCols];
  Mbarrier full[kStages], empty[kStages];
};

template <int kParts, bool Down>
__global__ void __cluster_dims__(kParts, 1, 1) __launch_bounds__(kThreads, 2)
    few_rows_kernel(const __grid_constant__ FewArgs a, const __grid_constant__ CUtensorMap a_map,
                    const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap tail_a_map,
                    const __grid_constant__ CUtensorMap tail_b_map) {
  extern __shared__ __align__(1024) unsigned char space[];
  FewShared& s = *reinterpret_cast<FewShared*>(space);
  const int group = warpgroup(), rank = kParts > 1 ? rank_in_cluster() : 0;
  const int tile = static_cast<int>(blockIdx.x) / kParts, row0 = tile / a.columns * kRows,
            col0 = tile % a.columns * kCols;
  const int first = a.steps * rank / kParts, steps = a.steps * (rank + 1) / kParts - first,
            tail_steps = rank == 0 ? a.tail_steps : 0;
  if (threadIdx.x == 0) make_gates(s.full, s.empty, 2);
  __syncthreads();
  allow_next_grid();
  wait_for_previous_grid();
  StageRing<kStages> ring;
  if (group == 2) {
    if (threadIdx.x == 256) {
      for (int k = 0; k < steps + tail_steps; ++k, ring.advance()) {
        s.empty[ring.slot].wait(ring.parity ^ 1);
        s.full[ring.slot].arrive_and_expect(kStageBytes);
        unsigned char *left = s.ring.a[ring.slot], *right = s.ring.b[ring.slot];
        if (k < steps) {
          copy_box(left, a_map, (first + k) * 128, row0, &s.full[ring.slot]);
          copy_box(right, b_map, (first + k) * 128, col0, &s.full[ring.slot]);
        } else {
          const int t = (k - steps) * 64;
          copy_box(left, tail_a_map, t, row0, &s.full[ring.slot]);
          if constexpr (Down) {
            for (int box = 0; box < kCols / 64; ++box)
              copy_box(right + box * kBoxBytes, tail_b_map, col0 + box * 64, t, &s.full[ring.slot]);
          } else {
            copy_box(right, tail_b_map, t, col0, &s.full[ring.slot]);
          }
        }
      }
    }
  } else {
    const int w = group, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int my_row = w * 64 + thread / 32 * 16 + lane / 4;  // and eight below it
    const float top = a.a_scale != nullptr && row0 + my_row < a.m ? a.a_scale[row0 + my_row] : 1.0f,
                below = a.a_scale != nullptr && row0 + my_row + 8 < a.m ? a.a_scale[row0 + my_row + 8] : 1.0f;
    if (w == 0) s.b_scale[thread] = a.b_scale != nullptr && col0 + thread < a.n ? a.b_scale[col0 + thread] : 1.0f;
    sync_threads_of(3, 256);
    auto release = [&](int i) {
      sync_threads_of(1 + w, 128);
      if (thread == 0) s.empty[i].arrive();
    };
    float d[64] = {};
    int last = 0;
    for (int k = 0; k < steps; ++k, ring.advance()) {
      s.full[ring.slot].wait(ring.parity);
      const uint64_t left = across(shared_address(s.ring.a[ring.slot]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                     right = across(shared_address(s.ring.b[ring.slot]));
      begin_products();
#pragma unroll
      for (int c = 0; c < 4; ++c) multiply_64x128_e4m3(d, further(left, c * 32), further(right, c * 32));
      end_group();
      if (k > 0) {
        wait_groups<1>();
        release(last);
      }
      last = ring.slot;
    }
    wait_groups<0>();
    if (steps > 0) release(last);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 b = *reinterpret_cast<const float2*>(s.b_scale + j * 8 + lane % 4 * 2);
      d[j * 4] *= top * b.x, d[j * 4 + 1] *= top * b.y, d[j * 4 + 2] *= below * b.x, d[j * 4 + 3] *= below * b.y;
    }
    for (int k = 0; k < tail_steps; ++k, ring.advance()) {
      s.full[ring.slot].wait(ring.parity);
      const uint64_t left = across(shared_address(s.ring.a[ring.slot]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                     right = Down ? down(shared_address(s.ring.b[ring.slot]), kBoxBytes)
                                  : across(shared_address(s.ring.b[ring.slot]));
#pragma unroll 1
      for (int c = 0; c < min(4, a.tail_products - 4 * k); ++c) {
        begin_products();
        multiply_64x128<Down>(d, further(left, c * 32), further(right, c * (Down ? 2048 : 32)));
        end_group();
      }
      wait_groups<0>();
      release(ring.slot);
    }
    sync_threads_of(3, 256);  // nobody reads the ring any more: the sums lie there
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(&s.sums[my_row + half * 8][j * 8 + lane % 4 * 2]) =
            make_float2(d[j * 4 + half * 2], d[j * 4 + half * 2 + 1]);
  }
  if constexpr (kParts > 1)
    sync_cluster();
  else
    __syncthreads();
  if (group < 2) {
    // Each block its part of the columns, eight a thread.
    constexpr int kWidth = kCols / kParts, kOfRow = kWidth / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kOfRow; i += 256) {
      const int r = i / kOfRow, c = rank * kWidth + i % kOfRow * 8, row = row0 + r, col = col0 + c;
      float v[8] = {};
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          const float4 of = kParts > 1 ? shared_of(&s.sums[r][c + q * 4], part)
                                       : *reinterpret_cast<const float4*>(&s.sums[r][c + q * 4]);
          v[q * 4] += of.x, v[q * 4 + 1] += of.y, v[q * 4 + 2] += of.z, v[q * 4 + 3] += of.w;
        }
      if (a.bias != nullptr)
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (col + e < a.n) v[e] += to_float(a.bias[col + e]);
      const uint4 y =
          make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
      const bool there = row < a.m && col < a.n;
      if (there) {
        bf16* to = a.c + row * a.ldc + col;
        if (col + 8 <= a.n) {
          *reinterpret_cast<uint4*>(to) = y;
        } else {
          for (int e = 0; e < a.n - col; ++e) to[e] = from_float<bf16>(v[e]);
        }
      }
      if (a.row_absmax != nullptr) {
        uint32_t largest = larger_size(larger_size(larger_size(larger_size(0, y.x), y.y), y.z), y.w);
#pragma unroll
        for (int d = 1; d < kOfRow; d *= 2) largest = larger_size(largest, shuffle_xor(largest, d));
        largest = larger_size(largest, largest >> 16);
        if (there && i % kOfRow == 0)
          atomicMax(a.row_absmax + static_cast<int64_t>(row) * a.row_parts + col / a.part_columns, largest << 16);
      }
    }
  }
  if constexpr (kParts > 1) sync_cluster();  // nobody leaves while another still reads its sums
}

template <int kParts>
void launch(cudaStream_t stream, const Gemm& g, const FewArgs& a, int tiles) {
  const bool tail = g.tail_a.cols > 0, is_down = tail && !g.tail_trans_b;
  const CUtensorMap left = boxes_of(g.a, 128, kRows), right = boxes_of(g.b, 128, kCols);
  const CUtensorMap tail_left = tail ? boxes_of(g.tail_a, 64, kRows) : left,
                    tail_right = tail ? boxes_of(g.tail_b, 64, is_down ? 64 : kCols) : right;
  const auto kernel = is_down ? few_rows_kernel<kParts, true> : few_rows_kernel<kParts, false>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(FewShared))) == cudaSuccess,
          "products of few rows of E4M3 need 100 KB of shared memory");
  launch_dependent(kernel, dim3(static_cast<unsigned>(kParts * tiles)), dim3(kThreads), sizeof(FewShared), stream, a,
                   left, right, tail_left, tail_right);
}

}  // namespace

bool rowwise_fp8_few_covers(const Gemm& g) {
  const int64_t large = ceil_div(g.c.cols, 256) * ceil_div(g.c.rows, 256);  // tiles of rowwise_fp8.cu
  return g.c.rows <= kRows || (g.c.rows <= kMostRows && large < 66);
}

void rowwise_fp8_few(cudaStream_t stream, const Gemm& g) {
  FewArgs a{};
  a.a_scale = g.a_scale, a.b_scale = g.b_scale, a.bias = static_cast<const bf16*>(g.bias),
  a.row_absmax = reinterpret_cast<unsigned*>(g.row_absmax);
  a.c = static_cast<bf16*>(g.c.p), a.ldc = g.c.ld;
  a.row_parts = g.row_parts, a.part_columns = static_cast<int>(ceil_div(g.c.cols, g.row_parts));
  a.m = static_cast<int>(g.c.rows), a.n = static_cast<int>(g.c.cols);
  a.columns = static_cast<int>(ceil_div(g.c.cols, kCols));
  a.steps = static_cast<int>(ceil_div(g.a.cols, 128)), a.tail_steps = static_cast<int>(ceil_div(g.tail_a.cols, 64)),
  a.tail_products = static_cast<int>(ceil_div(g.tail_a.cols, 16));
  const int tiles = a.columns * static_cast<int>(ceil_div(g.c.rows, kRows));
  if (tiles * kMostParts <= kBlocks)
    launch<kMostParts>(stream, g, a, tiles);
  else if (tiles * 2 <= kBlocks)
    launch<2>(stream, g, a, tiles);
  else
    launch<1>(stream, g, a, tiles);
  check_launch("rowwise_fp8_few");
}

}  // namespace mxt::kernels::cuda
