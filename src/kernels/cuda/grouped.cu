#include "kernels/cuda/grouped.h"

#include "kernels/cuda/thin.h"
#include "kernels/gpu/async_copy.cuh"
#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"
#include "kernels/gpu/shared.cuh"

namespace mxt::kernels::cuda {
namespace {

struct GroupedArgs {
  const void *a, *b;
  void* c;
  const int32_t* first;
  int64_t lda, ldb, ldc;
  int n, k, experts;  // columns of c; inner dimension (kWeight: rows of an expert's c)
  float alpha;
  bool accumulate;
};

// Which expert's rows the tile `tile` of all experts' tiles of kRows rows holds, and its first row; false: none.
struct Place {
  int expert, row, end;
};
__device__ __forceinline__ bool find_tile(const int32_t* first, int experts, int tile, int rows, Place* out) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base < experts; base += 32) {
    const int e = base + lane;
    const int begin = e < experts ? first[e] : 0, end = e < experts ? first[e + 1] : 0;
    const int tiles = (end - begin + rows - 1) / rows;
    int sum = tiles;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int up = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += up;
    }
    const int mine = before + sum - tiles;
    const unsigned hit = __ballot_sync(0xffffffffu, tile >= mine && tile < mine + tiles);
    if (hit != 0) {
      const int at = __ffs(static_cast<int>(hit)) - 1;
      out->expert = base + at;
      out->row = __shfl_sync(0xffffffffu, begin + (tile - mine) * rows, at);
      out->end = __shfl_sync(0xffffffffu, end, at);
      return true;
    }
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
  return false;
}

// ---- on the matrix units: a block makes 128 × 128 of c, four warps 64 × 64 each; the ring has three stages of k, two
// where a block may have less shared memory ----

constexpr int kM = 128, kN = 128, kK = 64, kThreads = 128;
constexpr int kAlong = kK + 8, kAcross = kM + 8;  // elements between rows of a shared tile: [128][kK], [kK][128]
constexpr int kTile = kM * kAlong > kK* kAcross ? kM* kAlong : kK* kAcross;
constexpr size_t ring_bytes(int stages) { return sizeof(uint16_t) * 2 * kTile * static_cast<size_t>(stages); }

// A tile of an operand into shared memory. `rows`: [128 of m or n][kK of k] as memory has it, else [kK of k][128].
template <bool kRows>
__device__ __forceinline__ void load_tile(uint16_t* to, const uint16_t* from, int64_t ld, int at, int end, int k,
                                          int k_end) {
#pragma unroll
  for (int i = 0; i < kM * kK / 8 / kThreads; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + i * kThreads;
    if (kRows) {
      const int r = chunk / (kK / 8), c = chunk % (kK / 8) * 8;
      const bool there = at + r < end && k + c < k_end;
      copy_16(to + r * kAlong + c, there ? from + (at + r) * ld + k + c : from, there);
    } else {
      const int r = chunk / (kM / 8), c = chunk % (kM / 8) * 8;
      const bool there = k + r < k_end && at + c < end;
      copy_16(to + r * kAcross + c, there ? from + (k + r) * ld + at + c : from, there);
    }
  }
}

// c[row…][col…] of one expert. a: rows [m_at, m_end) of k side by side (kLeftRows) or k rows of m; b likewise.
template <int kStages, bool kLeftRows, bool kRightRows, typename Out>
__device__ __forceinline__ void tile_product(const uint16_t* a, int64_t lda, int m_at, int m_end, const uint16_t* b,
                                             int64_t ldb, int n_at, int n_end, int k_begin, int k_end, Out* c,
                                             int64_t ldc, float alpha, bool accumulate, uint16_t* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int wm = warp / 2 * 64, wn = warp % 2 * 64;
  float sum[4][8][4] = {};
  const int steps = (k_end - k_begin + kK - 1) / kK;
  auto ask = [&](int step) {
    if (step < steps) {
      uint16_t* left = shared + step % kStages * 2 * kTile;
      load_tile<kLeftRows>(left, a, lda, m_at, m_end, k_begin + step * kK, k_end);
      load_tile<kRightRows>(left + kTile, b, ldb, n_at, n_end, k_begin + step * kK, k_end);
    }
    copies_end();
  };
  for (int i = 0; i < kStages - 1; ++i) ask(i);
  for (int step = 0; step < steps; ++step) {
    copies_wait<kStages - 2>();
    __syncthreads();
    ask(step + kStages - 1);
    const uint16_t *left = shared + step % kStages * 2 * kTile, *right = left + kTile;
#pragma unroll
    for (int k = 0; k < kK; k += 16) {
      uint32_t x[4][4], y[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int m = wm + i * 16;
        if (kLeftRows)
          load_matrices(x[i], shared_address(left + (m + lane % 16) * kAlong + k + lane / 16 * 8));
        else
          load_transposed(x[i], shared_address(left + (k + lane / 16 * 8 + lane % 8) * kAcross + m + lane / 8 % 2 * 8));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = wn + j * 16;
        if (kRightRows)
          load_matrices(y[j], shared_address(right + (n + lane / 16 * 8 + lane % 8) * kAlong + k + lane / 8 % 2 * 8));
        else
          load_transposed(y[j],
                          shared_address(right + (k + lane / 8 % 2 * 8 + lane % 8) * kAcross + n + lane / 16 * 8));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) multiply_add(sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
    }
  }
  copies_wait<0>();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = m_at + wm + i * 16 + half * 8 + lane / 4;
      if (m >= m_end) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int n = n_at + wn + j * 8 + lane % 4 * 2;
        if (n >= n_end) continue;  // n_end is even
        Out* p = c + m * ldc + n;
        float u = alpha * sum[i][j][half * 2], v = alpha * sum[i][j][half * 2 + 1];
        if constexpr (sizeof(Out) == 2) {
          if (accumulate) {
            const uint32_t old = *reinterpret_cast<const uint32_t*>(p);
            u += __uint_as_float(old << 16), v += __uint_as_float(old & 0xffff0000u);
          }
          *reinterpret_cast<uint32_t*>(p) = pack_bf16(u, v);
        } else {
          p[0] = u + (accumulate ? p[0] : 0.0f);
          p[1] = v + (accumulate ? p[1] : 0.0f);
        }
      }
    }
}

template <int kStages, bool kRightRows>
__global__ void __launch_bounds__(kThreads, 2) rows_kernel(const __grid_constant__ GroupedArgs g) {
  extern __shared__ __align__(128) uint16_t shared[];
  Place at;
  if (!find_tile(g.first, g.experts, static_cast<int>(blockIdx.y), kM, &at)) return;
  // b of an expert: [n, k] (kRightRows) or [k, n].
  const auto* b =
      static_cast<const uint16_t*>(g.b) + static_cast<int64_t>(at.expert) * (kRightRows ? g.n : g.k) * g.ldb;
  tile_product<kStages, true, kRightRows>(static_cast<const uint16_t*>(g.a), g.lda, at.row, at.end, b, g.ldb,
                                          static_cast<int>(blockIdx.x) * kN, g.n, 0, g.k, static_cast<uint16_t*>(g.c),
                                          g.ldc, g.alpha, g.accumulate, shared);
}

template <int kStages>
__global__ void __launch_bounds__(kThreads, 2) weight_kernel(const __grid_constant__ GroupedArgs g) {
  extern __shared__ __align__(128) uint16_t shared[];
  const int e = static_cast<int>(blockIdx.z);
  float* c = static_cast<float*>(g.c) + static_cast<int64_t>(e) * g.k * g.ldc;
  tile_product<kStages, false, false>(static_cast<const uint16_t*>(g.a), g.lda, static_cast<int>(blockIdx.y) * kM, g.k,
                                      static_cast<const uint16_t*>(g.b), g.ldb, static_cast<int>(blockIdx.x) * kN, g.n,
                                      g.first[e], g.first[e + 1], c, g.ldc, g.alpha, g.accumulate, shared);
}

// ---- by plain threads: 16 × 16 of c a block, whatever the shape ----

constexpr int kSide = 16;

struct PlainTypes {
  bool a, b, c;  // whether bf16
};

template <Grouped kKind>
__global__ void __launch_bounds__(kSide* kSide) plain_kernel(const __grid_constant__ GroupedArgs g, PlainTypes half) {
  __shared__ float x[kSide][kSide + 1], y[kSide][kSide + 1];
  constexpr bool kWeight = kKind == Grouped::kWeight;
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  Place at{};
  if (kWeight) {
    at = {static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y) * kSide, g.k};
  } else {
    __shared__ Place found;
    __shared__ bool any;
    if (tx == 0 && ty == 0) {
      int before = 0;
      any = false;
      for (int e = 0; e < g.experts && !any; ++e) {
        const int begin = g.first[e], end = g.first[e + 1], tiles = (end - begin + kSide - 1) / kSide;
        const int tile = static_cast<int>(blockIdx.y) - before;
        if (tile < tiles) found = {e, begin + tile * kSide, end}, any = true;
        before += tiles;
      }
    }
    __syncthreads();
    if (!any) return;
    at = found;
  }
  const int n = static_cast<int>(blockIdx.x) * kSide;
  const int k_begin = kWeight ? g.first[at.expert] : 0, k_end = kWeight ? g.first[at.expert + 1] : g.k;
  float sum = 0;
  for (int k = k_begin; k < k_end; k += kSide) {
    // x[i][j]: row i of c, inner j; y[i][j]: inner i, column j of c
    if (kWeight) {
      x[tx][ty] = k + ty < k_end && at.row + tx < at.end ? get(g.a, half.a, (k + ty) * g.lda + at.row + tx) : 0.0f;
      y[ty][tx] = k + ty < k_end && n + tx < g.n ? get(g.b, half.b, (k + ty) * g.ldb + n + tx) : 0.0f;
    } else {
      x[ty][tx] = at.row + ty < at.end && k + tx < k_end ? get(g.a, half.a, (at.row + ty) * g.lda + k + tx) : 0.0f;
      if (kKind == Grouped::kForward)
        y[tx][ty] = n + ty < g.n && k + tx < k_end
                        ? get(g.b, half.b, (static_cast<int64_t>(at.expert) * g.n + n + ty) * g.ldb + k + tx)
                        : 0.0f;
      else
        y[ty][tx] = k + ty < k_end && n + tx < g.n
                        ? get(g.b, half.b, (static_cast<int64_t>(at.expert) * g.k + k + ty) * g.ldb + n + tx)
                        : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide; ++i) sum += x[ty][i] * y[i][tx];
    __syncthreads();
  }
  if (at.row + ty >= at.end || n + tx >= g.n) return;
  const int64_t row = kWeight ? static_cast<int64_t>(at.expert) * g.k + at.row + ty : at.row + ty;
  const int64_t i = row * g.ldc + n + tx;
  const float old = g.accumulate ? get(g.c, half.c, i) : 0.0f, v = g.alpha * sum + old;
  if (half.c)
    static_cast<bf16*>(g.c)[i] = from_float<bf16>(v);
  else
    static_cast<float*>(g.c)[i] = v;
}

bool on_matrix_units(const GroupedGemm& g) {
  const bool types = g.a.type == DType::kBF16 && g.b.type == DType::kBF16;
  const DType out = g.kind == Grouped::kWeight ? DType::kF32 : DType::kBF16;
  return types && g.c.type == out && wide(g.a) && wide(g.b) && g.c.cols % 2 == 0 && g.c.ld % 2 == 0 &&
         reinterpret_cast<uintptr_t>(g.c.p) % 8 == 0;
}

template <int kStages>
void on_units(cudaStream_t stream, Grouped kind, dim3 grid, const GroupedArgs& g) {
  const auto kernel = kind == Grouped::kWeight    ? weight_kernel<kStages>
                      : kind == Grouped::kForward ? rows_kernel<kStages, true>
                                                  : rows_kernel<kStages, false>;
  allow_shared(kernel, ring_bytes(kStages));
  kernel<<<grid, kThreads, ring_bytes(kStages), stream>>>(g);
}

}  // namespace

void grouped_gemm(cudaStream_t stream, const GroupedGemm& g, bool settled) {
  const bool weight = g.kind == Grouped::kWeight;
  if (g.c.cols == 0 || g.c.rows == 0) return;
  if (thin_covers(g)) return thin_grouped_gemm(stream, g, settled);
  if (grouped_tiles_cover(g)) return grouped_tiles(stream, g);
  if (grouped_adapters_cover(g)) return grouped_adapters(stream, g);
  const GroupedArgs args{g.a.p,
                         g.b.p,
                         g.c.p,
                         g.first,
                         g.a.ld,
                         g.b.ld,
                         g.c.ld,
                         static_cast<int>(g.c.cols),
                         static_cast<int>(g.a.cols),
                         static_cast<int>(g.experts),
                         g.alpha,
                         g.accumulate};
  const bool fast = on_matrix_units(g);
  const int64_t rows = fast ? kM : kSide, cols = fast ? kN : kSide;
  const auto across = static_cast<unsigned>(ceil_div(g.c.cols, cols));
  // Every expert may end in a tile that is not full.
  const dim3 grid =
      weight ? dim3(across, static_cast<unsigned>(ceil_div(g.a.cols, rows)), static_cast<unsigned>(g.experts))
             : dim3(across, static_cast<unsigned>(g.c.rows / rows + g.experts));
  if (fast) {
    ring_bytes(3) <= device::card().shared ? on_units<3>(stream, g.kind, grid, args)
                                           : on_units<2>(stream, g.kind, grid, args);
  } else {
    const PlainTypes half{g.a.type == DType::kBF16, g.b.type == DType::kBF16, g.c.type == DType::kBF16};
    const dim3 block(kSide, kSide);
    if (weight)
      plain_kernel<Grouped::kWeight><<<grid, block, 0, stream>>>(args, half);
    else if (g.kind == Grouped::kForward)
      plain_kernel<Grouped::kForward><<<grid, block, 0, stream>>>(args, half);
    else
      plain_kernel<Grouped::kInput><<<grid, block, 0, stream>>>(args, half);
  }
  check_launch("grouped_gemm");
}

}  // namespace mxt::kernels::cuda
