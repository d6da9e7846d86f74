// A block a multiprocessor. One warp of it asks for W, 16 or 32 rows of some columns a stage, in bulk copies into a
// ring in shared memory; eight warps multiply what has come with the tensor cores: W's rows are the 16 rows of a
// product, x's rows its 8 columns. A thread takes 16 bytes of a row of W and of a row of x as the fragments of two
// products: which k a product takes first does not matter as long as both sides agree. The ring begins to fill while
// the kernels before this one still run (launch_dependent): between two products the memory never rests. Products of
// experts go the same way, a part at a time: an expert and eight of its rows at most.
#include "kernels/cuda/thin.h"

#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

// Of each kPart columns a warp takes kPart / kWarps, whatever the stage's width: this is the order of the sum over k.
constexpr int kWarps = 8, kPart = 512, kThreads = (kWarps + 1) * 32, kMostRows = 64, kMostRoutedRows = 512;

// kTiles · 16 rows of W a stage, kPanels · 8 rows of x.
template <int kTiles, int kPanels>
struct Ring {
  // A multiprocessor starts about twenty bulk copies a microsecond: they must be long.
  static constexpr int kRows = kTiles * 16, kTokens = kPanels * 8, kColumns = (kPanels <= 2 ? 4 / kTiles : 1) * kPart;
  static constexpr int kRowBytes = kColumns * 2 + 64;  // 64 more: eight threads that read two rows touch all banks once
  static constexpr int kStageBytes = kRows * kRowBytes;
  static constexpr int kStages = (225 * 1024 - kWarps * 16 * (kTokens + 1) * 4) / kStageBytes;
  static constexpr size_t kBytes = static_cast<size_t>(kStages) * kStageBytes;
};

struct ThinArgs {
  const bf16 *x, *w;
  void* y;
  const void* bias;
  int64_t ldx, ldw, ldy;
  int m, n, k;
  float alpha;
  bool accumulate, bias_bf16, constant;
  const int32_t* first;  // of products of experts: as GroupedGemm has it, with W of expert after expert
  int experts;
};

// Of the warps that multiply.
__device__ __forceinline__ void sync_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory"); }

struct Part {
  int expert, row, rows;
};
// Of a stage's rows of a W: where they begin, and the rows of x and y.
struct Tile {
  const bf16* w;
  int first, row, rows;
};

// The experts that have rows, in order; one warp calls it. Returns how many parts there are.
__device__ __forceinline__ int find_parts(const int32_t* first, int experts, Part* parts) {
  constexpr int kRows = 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  constexpr int kAhead = 4;  // reads on their way at once
  for (int base = 0; base < experts; base += kAhead * 32) {
    int begin[kAhead], end[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int e = base + j * 32 + lane;
      begin[j] = e < experts ? __ldcg(first + e) : 0, end[j] = e < experts ? __ldcg(first + e + 1) : 0;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int mine = (end[j] - begin[j] + kRows - 1) / kRows;
      int sum = mine;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int up = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += up;
      }
      for (int i = 0; i < mine; ++i)
        parts[before + sum - mine + i] = {base + j * 32 + lane, begin[j] + i * kRows,
                                          min(kRows, end[j] - begin[j] - i * kRows)};
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  return before;
}

// A thread's sums of 16 rows of W, which begin anew; by all warps that multiply.
template <typename Y, int kPanels>
__device__ __forceinline__ void store_sums(const ThinArgs& a, float (&sum)[kPanels][4],
                                           float (&sums)[kWarps][16][kPanels * 8 + 1], int n0, int row0, int rows) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[warp][lane / 4 + i / 2 * 8][p * 8 + lane % 4 * 2 + i % 2] = sum[p][i];
      sum[p][i] = 0;
    }
  sync_multipliers();
  for (int i = static_cast<int>(threadIdx.x); i < 16 * rows; i += kWarps * 32) {
    const int row = i / 16, n = n0 + i % 16;
    if (n >= a.n) continue;
    float v = 0;
    for (int q = 0; q < kWarps; ++q) v += sums[q][i % 16][row];
    v *= a.alpha;
    if (a.bias) v += a.bias_bf16 ? to_float(static_cast<const bf16*>(a.bias)[n]) : static_cast<const float*>(a.bias)[n];
    Y* to = static_cast<Y*>(a.y) + (row0 + row) * a.ldy + n;
    if (a.accumulate) v += to_float(*to);
    *to = from_float<Y>(v);
  }
  sync_multipliers();
}

template <typename Y, int kTiles, int kPanels, bool kExperts>
__global__ __launch_bounds__(kThreads, 1) void thin_kernel(const __grid_constant__ ThinArgs a) {
  using R = Ring<kTiles, kPanels>;
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ Mbarrier full[R::kStages], empty[R::kStages];
  __shared__ float sums[kWarps][16][R::kTokens + 1];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) make_gates(full, empty, kWarps * 32);
  __syncthreads();
  allow_next_grid();
  const int of_matrix = (a.n + R::kRows - 1) / R::kRows;
  int items = of_matrix;
  __shared__ Part parts[kExperts ? kMostRoutedRows : 1];
  if constexpr (kExperts) {
    __shared__ int found;
    if (!a.constant) wait_for_previous_grid();
    if (warp == 0) {
      const int count = find_parts(a.first, a.experts, parts);
      if (lane == 0) found = count;
    }
    __syncthreads();
    items *= found;
  }
  const auto tile_at = [&](int i) {
    if constexpr (!kExperts) return Tile{a.w, i * R::kRows, 0, a.m};
    const Part& part = parts[i / of_matrix];
    return Tile{a.w + static_cast<int64_t>(part.expert) * a.n * a.ldw, i % of_matrix * R::kRows, part.row, part.rows};
  };
  const int begin = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  StageRing<R::kStages> at;
  if (warp == kWarps) {
    const uint64_t policy = read_once();  // W
    if (!kExperts && !a.constant) wait_for_previous_grid();
    for (int i = begin; i < items; i += step) {
      const Tile tile = tile_at(i);
      const bf16* row = tile.w + min(tile.first + lane, a.n - 1) * a.ldw;  // rows past the end: computed, not stored
      for (int k = 0; k < a.k; k += R::kColumns, at.advance()) {
        const int bytes = min(R::kColumns, a.k - k) * 2;
        empty[at.slot].wait(at.parity ^ 1);
        if (lane == 0) full[at.slot].arrive_and_expect(bytes * R::kRows);
        __syncwarp();
        if (lane < R::kRows)
          copy_to_shared(ring + at.slot * R::kStageBytes + lane * R::kRowBytes, row + k, bytes, &full[at.slot], policy);
      }
    }
    return;
  }
  if (!kExperts || a.constant) wait_for_previous_grid();
  const int g = lane / 4, t = lane % 4;
  float sum[kTiles][kPanels][4] = {};
  constexpr int kChunks = R::kColumns / kWarps / 32, kOfPart = kPart / kWarps;
  const auto column = [&](int c) { return c * 32 / kOfPart * kPart + warp * kOfPart + c * 32 % kOfPart + t * 8; };
  uint4 x[kChunks][kPanels];
  const auto ask_x = [&](const Tile& tile, int k0) {
    const bf16* from = a.x + (tile.row + g) * a.ldx + k0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        x[c][p] = make_uint4(0, 0, 0, 0);
        if (p * 8 + g < tile.rows && k0 + column(c) < a.k)
          x[c][p] = *reinterpret_cast<const uint4*>(from + p * 8 * a.ldx + column(c));
      }
  };
  if (begin < items) ask_x(tile_at(begin), 0);
  for (int item = begin; item < items; item += step) {
    const Tile tile = tile_at(item);
    for (int k0 = 0; k0 < a.k; k0 += R::kColumns, at.advance()) {
      full[at.slot].wait(at.parity);
      const unsigned char* stage = ring + at.slot * R::kStageBytes + g * R::kRowBytes;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          uint4 top = make_uint4(0, 0, 0, 0), low = top;
          if (k0 + column(c) < a.k) {  // what lies in the ring past the end is no number
            top = *reinterpret_cast<const uint4*>(stage + i * 16 * R::kRowBytes + column(c) * 2);
            low = *reinterpret_cast<const uint4*>(stage + (i * 16 + 8) * R::kRowBytes + column(c) * 2);
          }
#pragma unroll
          for (int p = 0; p < kPanels; ++p) {
            multiply_add(sum[i][p], top.x, low.x, top.y, low.y, x[c][p].x, x[c][p].y);
            multiply_add(sum[i][p], top.z, low.z, top.w, low.w, x[c][p].z, x[c][p].w);
          }
        }
      empty[at.slot].arrive();
      // Of the stage after this one, the next rows' too: it comes while the sums are stored.
      if (k0 + R::kColumns < a.k)
        ask_x(tile, k0 + R::kColumns);
      else if (item + step < items)
        ask_x(tile_at(item + step), 0);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) store_sums<Y, kPanels>(a, sum[i], sums, tile.first + i * 16, tile.row, tile.rows);
  }
}

int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n > 0 ? n : 1;
  }();
  return count;
}

template <typename Y, int kTiles, int kPanels, bool kExperts>
void launch_ring(cudaStream_t stream, const ThinArgs& a) {
  using R = Ring<kTiles, kPanels>;
  const auto kernel = thin_kernel<Y, kTiles, kPanels, kExperts>;
  static const bool large = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(R::kBytes)) == cudaSuccess;
  require(large, "a multiprocessor has too little shared memory for products of few rows");
  const int64_t items = ceil_div(a.n, R::kRows) * (kExperts ? a.m : 1);
  launch_dependent(kernel, dim3(static_cast<unsigned>(std::min<int64_t>(items, multiprocessors()))), dim3(kThreads),
                   R::kBytes, stream, a);
}
// Of up to eight rows of x. Where a row of W is short two tiles are a stage, unless that leaves multiprocessors idle.
template <typename Y, bool kExperts>
void launch_eight(cudaStream_t stream, const ThinArgs& a) {
  using Two = Ring<2, 1>;
  if (a.k <= Two::kColumns && (kExperts || ceil_div(a.n, Two::kRows) >= 3 * multiprocessors() / 4))
    launch_ring<Y, 2, 1, kExperts>(stream, a);
  else
    launch_ring<Y, 1, 1, kExperts>(stream, a);
}
template <typename Y>
void launch(cudaStream_t stream, const ThinArgs& a) {
  if (a.m <= 8)
    launch_eight<Y, false>(stream, a);
  else if (a.m <= 16)
    launch_ring<Y, 2, 2, false>(stream, a);
  else if (a.m <= 32)
    launch_ring<Y, 2, 4, false>(stream, a);
  else
    launch_ring<Y, 2, 8, false>(stream, a);
}

bool aligned(const ConstMat& m) { return reinterpret_cast<uintptr_t>(m.p) % 16 == 0 && m.ld % 8 == 0; }

}  // namespace

bool thin_covers(const Gemm& g) {
  if (!device::card().warpgroups) return false;
  return !g.trans_a && g.trans_b && g.a.type == DType::kBF16 && g.b.type == DType::kBF16 &&
         (g.c.type == DType::kBF16 || g.c.type == DType::kF32) && g.c.rows <= kMostRows && g.a.cols % 8 == 0 &&
         g.c.cols < (int64_t{1} << 30) && g.a.cols < (int64_t{1} << 30) && aligned(g.a) && aligned(g.b) &&
         (g.bias == nullptr || g.bias_type == DType::kBF16 || g.bias_type == DType::kF32);
}

void thin_gemm(cudaStream_t stream, const Gemm& g) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  const ThinArgs a{static_cast<const bf16*>(g.a.p),
                   static_cast<const bf16*>(g.b.p),
                   g.c.p,
                   g.bias,
                   g.a.ld,
                   g.b.ld,
                   g.c.ld,
                   static_cast<int>(g.c.rows),
                   static_cast<int>(g.c.cols),
                   static_cast<int>(g.a.cols),
                   g.alpha,
                   g.accumulate,
                   g.bias_type == DType::kBF16,
                   g.b_constant,
                   nullptr,
                   0};
  if (g.c.type == DType::kBF16)
    launch<bf16>(stream, a);
  else
    launch<float>(stream, a);
  check_launch("thin_gemm");
}

// Wide results alone: an adapter's sides have kernels of their own.
bool thin_covers(const GroupedGemm& g) {
  if (!device::card().warpgroups) return false;
  return g.kind == Grouped::kForward && g.a.type == DType::kBF16 && g.b.type == DType::kBF16 &&
         g.c.type == DType::kBF16 && g.c.rows <= kMostRoutedRows && g.c.cols > 64 && g.a.cols > 64 &&
         g.a.cols % 8 == 0 && g.c.cols < (int64_t{1} << 24) && g.a.cols < (int64_t{1} << 24) && aligned(g.a) &&
         aligned(g.b);
}

void thin_grouped_gemm(cudaStream_t stream, const GroupedGemm& g, bool settled) {
  ThinArgs a{};
  a.x = static_cast<const bf16*>(g.a.p), a.w = static_cast<const bf16*>(g.b.p), a.y = g.c.p;
  a.ldx = g.a.ld, a.ldw = g.b.ld, a.ldy = g.c.ld;
  a.m = static_cast<int>(g.c.rows), a.n = static_cast<int>(g.c.cols), a.k = static_cast<int>(g.a.cols);
  a.alpha = g.alpha, a.accumulate = g.accumulate;
  a.first = g.first, a.experts = static_cast<int>(g.experts), a.constant = settled && g.b_constant;
  launch_eight<bf16, true>(stream, a);
  check_launch("thin_grouped_gemm");
}

}  // namespace mxt::kernels::cuda
