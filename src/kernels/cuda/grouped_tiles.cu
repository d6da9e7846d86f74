// Products of experts (GroupedGemm of bf16) as rowwise_fp8.cu's products of E4M3: a tile of 128 × 256 results a block,
// two blocks of a cluster one above the other sharing the expert's matrix. Which experts have how many rows only the
// device knows: every block counts the pairs of tiles before each expert and takes every so many-th tile of them.
#include <algorithm>

#include "kernels/cuda/grouped.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRows = 128, kCols = 256, kStages = 4, kThreads = 3 * 128, kTerms = 64;
constexpr int kRowBytes = kTerms * 2, kLeftBytes = kRows * kRowBytes, kRightBytes = kCols * kRowBytes;
constexpr int kCluster = 2, kPart = kCols / kCluster, kPairRows = kCluster * kRows;
constexpr int kStageBytes = kLeftBytes + kRightBytes;
constexpr int kBoxBytes = kTerms * 128;  // 64 terms of 64 columns, where the matrix's rows are the terms
constexpr int kOutBytes = 16 * 128;      // 16 rows of 64 results
constexpr int kClusters = 132 / kCluster;
constexpr int kMostExperts = 512;

struct TileArgs {
  const int32_t* first;
  void* c;
  int64_t ldc;
  int experts, n, columns;  // tiles across
  int k, steps;             // terms, and stages of them
  float alpha;
  bool accumulate;
};

struct TileShared {
  unsigned char a[kStages][kLeftBytes], b[kStages][kRightBytes];
  unsigned char out[8][2][kOutBytes];  // of each warp
  Mbarrier full[kStages], empty[kStages];
  int before[kMostExperts + 1];  // pairs of tiles of the experts before
};

// By the first warp.
__device__ __forceinline__ void count_pairs(const TileArgs& a, int* before) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int all = 0;
  for (int base = 0; base < a.experts; base += 32) {
    const int e = base + lane;
    int sum = e < a.experts ? (a.first[e + 1] - a.first[e] + kPairRows - 1) / kPairRows : 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int up = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += up;
    }
    if (e < a.experts) before[e + 1] = all + sum;
    all += __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) before[0] = 0;
}

struct TilePlace {
  int expert, row, end, column;
};
__device__ __forceinline__ TilePlace place_of(const TileArgs& a, const int* before, int tile, int rank) {
  const int pair = tile / a.columns;
  int low = 0, high = a.experts;  // the last expert whose first pair is not behind
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (before[middle] <= pair)
      low = middle;
    else
      high = middle;
  }
  return {low, a.first[low] + (pair - before[low]) * kPairRows + rank * kRows, a.first[low + 1],
          tile % a.columns * kCols};
}

// Down: c = a·b, the rows of an expert's matrix are the terms; else c = a·bᵀ.
template <bool Down>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    grouped_tiles_kernel(const __grid_constant__ TileArgs a, const __grid_constant__ CUtensorMap a_map,
                         const __grid_constant__ CUtensorMap b_map) {
  extern __shared__ __align__(1024) unsigned char space[];
  TileShared& s = *reinterpret_cast<TileShared*>(space);
  const int group = warpgroup(), rank = rank_in_cluster();
  if (threadIdx.x == 0) make_gates(s.full, s.empty, 2 * kCluster);  // two warpgroups of each block read
  allow_next_grid();
  wait_for_previous_grid();
  if (threadIdx.x < 32) count_pairs(a, s.before);
  sync_cluster();
  const int tiles = s.before[a.experts] * a.columns, first = static_cast<int>(blockIdx.x) / kCluster,
            clusters = static_cast<int>(gridDim.x) / kCluster;
  StageRing<kStages> ring;
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      for (int tile = first; tile < tiles; tile += clusters) {
        const TilePlace at = place_of(a, s.before, tile, rank);
        const int col = at.column + rank * kPart;
        for (int k = 0; k < a.steps; ++k, ring.advance()) {
          const int i = ring.slot;
          s.empty[i].wait(ring.parity ^ 1);
          s.full[i].arrive_and_expect(kStageBytes);
          copy_box(s.a[i], a_map, k * kTerms, at.row, &s.full[i]);
          unsigned char* right = s.b[i] + rank * (kPart * kRowBytes);
          if constexpr (Down) {
            for (int box = 0; box < kPart / 64; ++box)
              copy_box(right + box * kBoxBytes, b_map, col + box * 64, at.expert * a.k + k * kTerms, &s.full[i],
                       (1 << kCluster) - 1);
          } else {
            copy_box(right, b_map, k * kTerms, at.expert * a.n + col, &s.full[i], (1 << kCluster) - 1);
          }
        }
      }
    }
  } else {
    take_registers<240>();
    const int w = group - 1, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    auto release = [&](int slot) { have_read(s.empty[slot], 1 + w, kCluster); };
    for (int tile = first; tile < tiles; tile += clusters) {
      const TilePlace at = place_of(a, s.before, tile, rank);
      float d[128];
#pragma unroll
      for (float& x : d) x = 0;
      int last = 0;
      for (int k = 0; k < a.steps; ++k, ring.advance()) {
        const int i = ring.slot;
        s.full[i].wait(ring.parity);
        const uint64_t left = across(shared_address(s.a[i]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                       right = Down ? down(shared_address(s.b[i]), kBoxBytes) : across(shared_address(s.b[i]));
        begin_products();
#pragma unroll
        for (int c = 0; c < kTerms / 16; ++c)
          multiply_64x256<Down>(d, further(left, c * 32), further(right, c * (Down ? 2048 : 32)));
        end_group();
        if (k > 0) {
          wait_groups<1>();
          release(last);
        }
        last = i;
      }
      wait_groups<0>();
      release(last);
      // To memory through shared memory: each warp its own 16 rows, 64 columns at a time, in packs of eight. The rows
      // behind an expert's last one are the next one's.
      const int row0 = at.row + w * 64 + thread / 32 * 16;
      auto* c = static_cast<uint16_t*>(a.c);
#pragma unroll
      for (int box = 0; box < 4; ++box) {
        unsigned char* out = s.out[w * 4 + thread / 32][box % 2];
        const int r = lane % 16;  // the row whose address this lane names
#pragma unroll
        for (int j = 0; j < 4; ++j) {  // 16 columns
          float f[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) f[i] = a.alpha * d[box * 32 + j * 8 + i];
          if (a.accumulate) {  // before anything is rounded
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int row = row0 + i % 2 * 8 + lane / 4,
                        col = at.column + box * 64 + j * 16 + i / 2 * 8 + lane % 4 * 2;
              if (row >= at.end || col >= a.n) continue;
              const uint32_t old = *reinterpret_cast<const uint32_t*>(c + static_cast<int64_t>(row) * a.ldc + col);
              f[2 * i] += __uint_as_float(old << 16), f[2 * i + 1] += __uint_as_float(old & 0xffff0000u);
            }
          }
          const int piece = j * 2 + lane / 16;
          store_matrices(shared_address(out) + static_cast<uint32_t>(r * 128 + (piece ^ (r & 7)) * 16),
                         pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]), pack_bf16(f[4], f[5]), pack_bf16(f[6], f[7]));
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int of = i * 4 + lane / 8, piece = lane % 8, col = at.column + box * 64 + piece * 8;
          if (row0 + of >= at.end || col >= a.n) continue;
          store<bf16, 8>(c + static_cast<int64_t>(row0 + of) * a.ldc, col,
                         *reinterpret_cast<const Raw<bf16, 8>*>(out + of * 128 + (piece ^ (of & 7)) * 16));
        }
        __syncwarp();
      }
    }
  }
  sync_cluster();  // nobody leaves while another's copies or arrivals may still come here
}

}  // namespace

bool grouped_tiles_cover(const GroupedGemm& g) {
  if (!device::card().warpgroups) return false;
  const int64_t n = g.c.cols, k = g.a.cols;
  return g.kind != Grouped::kWeight && g.a.type == DType::kBF16 && g.b.type == DType::kBF16 &&
         g.c.type == DType::kBF16 && wide(g.a) && wide(g.b) && wide(ConstMat(g.c)) && n % 8 == 0 && n > 128 &&
         k >= 64 && k % (g.kind == Grouped::kForward ? 8 : kTerms) == 0 && g.experts <= kMostExperts &&
         g.c.rows < (1 << 30);
}

void grouped_tiles(cudaStream_t stream, const GroupedGemm& g) {
  const bool is_down = g.kind == Grouped::kInput;
  TileArgs a{};
  a.first = g.first, a.c = g.c.p, a.ldc = g.c.ld;
  a.experts = static_cast<int>(g.experts), a.n = static_cast<int>(g.c.cols);
  a.columns = static_cast<int>(ceil_div(g.c.cols, kCols));
  a.k = static_cast<int>(g.a.cols), a.steps = static_cast<int>(ceil_div(g.a.cols, kTerms));
  a.alpha = g.alpha, a.accumulate = g.accumulate;
  const CUtensorMap left = boxes_of(g.a, kTerms, kRows), right = boxes_of(g.b, 64, is_down ? kTerms : kPart);
  const auto kernel = is_down ? grouped_tiles_kernel<true> : grouped_tiles_kernel<false>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(TileShared))) == cudaSuccess,
          "products of experts need 227 KB of shared memory");
  const int64_t most = (g.c.rows / kPairRows + g.experts) * a.columns;
  launch_dependent(kernel, dim3(static_cast<unsigned>(kCluster * std::min<int64_t>(most, kClusters))), dim3(kThreads),
                   sizeof(TileShared), stream, a, left, right);
  check_launch("grouped_tiles");
}

}  // namespace mxt::kernels::cuda
