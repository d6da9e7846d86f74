// Gradients of weights from E4M3 operands: few results, each a sum over all tokens, so the sums are promoted to fp32 as
// they grow. A tile of 128 × 192 results a block (two sets of sums, the tensor cores' own and fp32, are then 192
// registers of a thread), otherwise as rowwise_fp8.cu: two blocks of a cluster one above the other share the right
// operand. Tiles are seldom a multiple of the multiprocessors: those of the last, broken round are cut along the tokens
// into pieces that fill it; a tile's last piece adds up what the others have left, in their order.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/rowwise_fp8.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRows = 128, kCols = 192, kStages = 5, kThreads = 3 * 128, kTerms = 128;
constexpr int kLeftBytes = kRows * kTerms, kRightBytes = kCols * kTerms, kStageBytes = kLeftBytes + kRightBytes;
constexpr int kCluster = 2, kPart = kCols / kCluster;
constexpr int kSums = 96;          // of a thread
constexpr int kPromoted = 2;       // stages whose products are summed by the tensor cores alone
constexpr int kClusters = 66;      // of an H100; what is cut how, and so the order of sums, hangs on it on every card
constexpr int kPairsTogether = 8;  // with all columns of theirs: about a square of what runs at a time
constexpr int kMostPieces = 8;
constexpr size_t kMarkBytes = size_t{16} << 10;
constexpr size_t kPieceBytes = size_t{kCluster} * 2 * 128 * kSums * sizeof(float);

struct DwArgs {
  const float *a_scale, *b_scale;
  float* c;
  float* parts;  // of pieces but the last, [piece][tile][rank][warpgroup][24][128] packs of four
  int* left;     // likewise: whether the part is there
  int64_t ldc;
  int m, n, steps, pairs, columns;
  int whole, cut, pieces;  // tiles that are not cut; that are; into how many
  bool accumulate;
};

struct DwShared {
  unsigned char a[kStages][kLeftBytes], b[kStages][kRightBytes];
  float b_scale[2][kCols];  // of each warpgroup
  Mbarrier full[kStages], empty[kStages];
};

// What is done in one go: stages [begin, end) of a tile. Pieces of the same tokens lie together.
struct Unit {
  int pair, column, begin, end, piece, cut;  // which of the pieces; which of the tiles that are cut
};
__device__ __forceinline__ Unit unit_of(int u, const DwArgs& a) {
  Unit r{0, 0, 0, a.steps, -1, 0};
  int tile = u;
  if (u >= a.whole) {
    r.piece = (u - a.whole) / a.cut, r.cut = (u - a.whole) % a.cut;
    tile = a.whole + r.cut;
    r.begin = static_cast<int>(static_cast<int64_t>(a.steps) * r.piece / a.pieces);
    r.end = static_cast<int>(static_cast<int64_t>(a.steps) * (r.piece + 1) / a.pieces);
  }
  const int together = kPairsTogether * a.columns, first = tile / together * kPairsTogether, in = tile % together;
  const int size = min(kPairsTogether, a.pairs - first);
  r.pair = first + in % size, r.column = in / size;
  return r;
}

__device__ __forceinline__ void mark(int* p) { asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(p) : "memory"); }
__device__ __forceinline__ bool is_marked(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v != 0;
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    dw_kernel(const __grid_constant__ DwArgs a, const __grid_constant__ CUtensorMap a_map,
              const __grid_constant__ CUtensorMap b_map) {
  extern __shared__ __align__(1024) unsigned char space[];
  DwShared& s = *reinterpret_cast<DwShared*>(space);
  const int group = warpgroup(), rank = rank_in_cluster();
  const int units = a.whole + a.cut * a.pieces, first = static_cast<int>(blockIdx.x) / kCluster,
            clusters = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) make_gates(s.full, s.empty, 2 * kCluster);  // two warpgroups of each block read
  sync_cluster();
  allow_next_grid();
  wait_for_previous_grid();
  StageRing<kStages> ring;
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      for (int u = first; u < units; u += clusters) {
        const Unit at = unit_of(u, a);
        const int row = (at.pair * kCluster + rank) * kRows, col = at.column * kCols + rank * kPart;
        for (int k = at.begin; k < at.end; ++k, ring.advance()) {
          const int i = ring.slot;
          s.empty[i].wait(ring.parity ^ 1);
          s.full[i].arrive_and_expect(kStageBytes);
          copy_box(s.a[i], a_map, k * kTerms, row, &s.full[i]);
          copy_box(s.b[i] + rank * (kPart * kTerms), b_map, k * kTerms, col, &s.full[i], (1 << kCluster) - 1);
        }
      }
    }
  } else {
    take_registers<240>();
    const int w = group - 1, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int my_row = thread / 32 * 16 + lane / 4;  // and eight below it
    for (int u = first; u < units; u += clusters) {
      const Unit at = unit_of(u, a);
      const int row = (at.pair * kCluster + rank) * kRows + w * 64 + my_row, col = at.column * kCols;
      float sum[kSums];
#pragma unroll
      for (float& x : sum) x = 0;
      // So many stages, then their products are promoted. The other warpgroup's run meanwhile.
      const auto add_stages = [&](auto count) {
        constexpr int kCount = decltype(count)::value;
        float d[kSums];
        int read[kCount];
#pragma unroll
        for (int j = 0; j < kCount; ++j, ring.advance()) {
          const int i = read[j] = ring.slot;
          s.full[i].wait(ring.parity);
          const uint64_t left = across(shared_address(s.a[i]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                         right = across(shared_address(s.b[i]));
          begin_products();
#pragma unroll
          for (int c = 0; c < 4; ++c) multiply_64x192_e4m3(d, further(left, c * 32), further(right, c * 32), j + c);
          end_group();
        }
        wait_groups<0>();
        sync_threads_of(1 + w, 128);  // all of the warpgroup have read them: an arrival in each block of the cluster
        if (thread < kCluster)
          for (const int i : read) arrive_at(s.empty[i], thread);
#pragma unroll
        for (int j = 0; j < kSums; ++j) sum[j] += d[j];
      };
      int k = at.begin;
      for (; k + kPromoted <= at.end; k += kPromoted) add_stages(std::integral_constant<int, kPromoted>());
      for (; k < at.end; ++k) add_stages(std::integral_constant<int, 1>());
      const auto place = [&](int piece) { return ((piece * a.cut + at.cut) * kCluster + rank) * 2 + w; };
      if (at.piece >= 0 && at.piece + 1 < a.pieces) {
        auto* part = reinterpret_cast<float4*>(a.parts) + static_cast<int64_t>(place(at.piece)) * (kSums / 4 * 128);
#pragma unroll
        for (int j = 0; j < kSums / 4; ++j)
          part[j * 128 + thread] = make_float4(sum[j * 4], sum[j * 4 + 1], sum[j * 4 + 2], sum[j * 4 + 3]);
        __threadfence();
        sync_threads_of(1 + w, 128);
        if (thread == 0) mark(a.left + place(at.piece));
        continue;
      }
      for (int piece = 0; piece < at.piece; ++piece) {
        if (thread == 0)
          while (!is_marked(a.left + place(piece))) __nanosleep(64);
        sync_threads_of(1 + w, 128);
        const auto* part =
            reinterpret_cast<const float4*>(a.parts) + static_cast<int64_t>(place(piece)) * (kSums / 4 * 128);
#pragma unroll
        for (int j = 0; j < kSums / 4; ++j) {
          const float4 p = __ldcg(part + j * 128 + thread);
          sum[j * 4] += p.x, sum[j * 4 + 1] += p.y, sum[j * 4 + 2] += p.z, sum[j * 4 + 3] += p.w;
        }
      }
      sync_threads_of(1 + w, 128);  // the scales of the tile before have been read
      for (int i = thread; i < kCols; i += 128)
        s.b_scale[w][i] = a.b_scale != nullptr && col + i < a.n ? a.b_scale[col + i] : 1.0f;
      sync_threads_of(1 + w, 128);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + half * 8 >= a.m) continue;
        const float by = a.a_scale != nullptr ? a.a_scale[row + half * 8] : 1.0f;
        float* c = a.c + static_cast<int64_t>(row + half * 8) * a.ldc + col + lane % 4 * 2;
        float2 old[kSums / 4] = {};  // asked for together: between stores each would be waited for
        if (a.accumulate)
#pragma unroll
          for (int j = 0; j < kSums / 4; ++j)
            if (col + j * 8 < a.n) old[j] = *reinterpret_cast<const float2*>(c + j * 8);
#pragma unroll
        for (int j = 0; j < kSums / 4; ++j) {
          if (col + j * 8 >= a.n) continue;
          const float2 b = *reinterpret_cast<const float2*>(s.b_scale[w] + j * 8 + lane % 4 * 2);
          float2 y = make_float2(sum[j * 4 + half * 2] * by * b.x, sum[j * 4 + half * 2 + 1] * by * b.y);
          if (a.accumulate) y.x += old[j].x, y.y += old[j].y;
          *reinterpret_cast<float2*>(c + j * 8) = y;
        }
      }
    }
  }
  sync_cluster();  // nobody leaves while another's copies or arrivals may still come here
}

// Into how many pieces each of so many tiles, which do not fill a round, is cut: that they take the shortest time. A
// piece that is left and added costs about a fiftieth of a tile.
int pieces_of(int cut, int steps, size_t bytes) {
  const auto time = [cut](int pieces) {
    return static_cast<double>(ceil_div(cut * pieces, kClusters)) / pieces + 0.02 * (pieces - 1);
  };
  int best = 1;
  for (int pieces = 2; pieces <= std::min(kMostPieces, steps); ++pieces)
    if (static_cast<size_t>((pieces - 1) * cut) * kPieceBytes + kMarkBytes <= bytes && time(pieces) < time(best))
      best = pieces;
  return best;
}

// How many clusters the card holds at a time: those that wait for another's piece must not keep it out.
int resident_clusters(const cudaLaunchConfig_t& config) {
  static const int most = [&] {
    int n = 0;
    require(cudaOccupancyMaxActiveClusters(&n, dw_kernel, &config) == cudaSuccess && n > 0,
            "clusters of two blocks with 227 KB of shared memory each do not fit this card");
    return n;
  }();
  return most;
}

}  // namespace

bool rowwise_fp8_dw_covers(const Gemm& g) {
  return device::card().warpgroups && g.a.type == DType::kF8E4M3 && g.c.type == DType::kF32 && g.bias == nullptr &&
         g.tail_a.cols == 0 && even_rows(g.a) && even_rows(g.b) && even_rows(g.c) && g.c.cols % 2 == 0 &&
         g.a.cols > 0 && g.c.rows < (1 << 24) && g.c.cols < (1 << 24);
}

void rowwise_fp8_dw(cudaStream_t stream, const Gemm& g, void* scratch, size_t bytes) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  DwArgs a{};
  a.a_scale = g.a_scale, a.b_scale = g.b_scale, a.c = static_cast<float*>(g.c.p), a.ldc = g.c.ld;
  a.m = static_cast<int>(g.c.rows), a.n = static_cast<int>(g.c.cols);
  a.steps = static_cast<int>(ceil_div(g.a.cols, kTerms));
  a.pairs = static_cast<int>(ceil_div(g.c.rows, kCluster * kRows));
  a.columns = static_cast<int>(ceil_div(g.c.cols, kCols));
  const int tiles = a.pairs * a.columns;
  a.cut = tiles % kClusters, a.whole = tiles - a.cut, a.pieces = pieces_of(a.cut, a.steps, bytes);
  a.accumulate = g.accumulate;
  a.left = static_cast<int*>(scratch);
  a.parts = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + kMarkBytes);
  if (a.pieces > 1)
    require(cudaMemsetAsync(a.left, 0, kMarkBytes, stream) == cudaSuccess, "marks of pieces could not be cleared");
  const CUtensorMap left = boxes_of(g.a, kTerms, kRows), right = boxes_of(g.b, kTerms, kPart);
  require(cudaFuncSetAttribute(dw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(DwShared))) == cudaSuccess,
          "products of E4M3 need 227 KB of shared memory");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster * kClusters), config.blockDim = dim3(kThreads),
  config.dynamicSmemBytes = sizeof(DwShared);
  const int clusters = std::min({a.whole + a.cut * a.pieces, kClusters, resident_clusters(config)});
  launch_dependent(dw_kernel, dim3(static_cast<unsigned>(kCluster * clusters)), dim3(kThreads), sizeof(DwShared),
                   stream, a, left, right);
  check_launch("rowwise_fp8_dw");
}

}  // namespace mxt::kernels::cuda
