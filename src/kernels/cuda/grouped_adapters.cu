// Products of experts with the matrices of their adapters: few terms (y += z·Bᵀ, dx = dz·A), few results (z = x·Aᵀ,
// dz = dy·B), or sums over an expert's rows of which one side is few columns (dB, dA). They cost what moving the wide
// operand costs, so that goes 16 bytes a thread, straight between memory and the registers of m16n8k16 products: which
// column or term of a product is which of the matrix's is ours to say, so each thread's eight are side by side.
#include <algorithm>

#include "kernels/cuda/grouped.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kFew = 64;

__device__ __forceinline__ uint32_t pair(uint16_t low, uint16_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

struct AdapterArgs {
  const uint16_t *a, *b;
  void* c;
  const int32_t* first;
  int64_t lda, ldb, ldc;
  int experts, n, k;  // columns of c; terms (kWeight: rows of an expert's c)
  float alpha;
  bool accumulate;
};

// ---- few terms: a block takes every kShares-th 128 rows of an expert and 256 columns, each warp 32 of them; its part
// of the expert's matrix stays in registers. Product j of a warp has the columns 8·(i/2) + 2j + i%2, i its own ----

constexpr int kShares = 8;  // blocks among which an expert's rows are shared
constexpr int kRows = 128, kCols = 256, kWarpCols = kCols / kWarps, kAtOnce = 2;

// Down: the matrix's rows are the terms (kInput).
template <int kSteps, bool Down>
__global__ void __launch_bounds__(kThreads, kSteps == 1 ? 3 : 2)
    few_terms_kernel(const __grid_constant__ AdapterArgs g) {
  allow_next_grid();
  wait_for_previous_grid();
  const auto expert = static_cast<int>(blockIdx.z);
  const int first = g.first[expert] + static_cast<int>(blockIdx.y) * kRows, end = g.first[expert + 1];
  if (first >= end) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, quad = lane % 4;
  const int begin = static_cast<int>(blockIdx.x) * kCols + warp * kWarpCols;
  const uint16_t* of_expert = g.b + static_cast<int64_t>(expert) * (Down ? g.k : g.n) * g.ldb;
  uint32_t b[kSteps][4][2];
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int k = s * 16 + h * 8 + quad * 2, i = lane / 4, col = begin + i / 2 * 8 + j * 2 + i % 2;
        b[s][j][h] = 0;
        if (k >= g.k || col >= g.n) continue;
        if constexpr (Down)
          b[s][j][h] = pair(of_expert[k * g.ldb + col], of_expert[(k + 1) * g.ldb + col]);
        else
          b[s][j][h] = *reinterpret_cast<const uint32_t*>(of_expert + col * g.ldb + k);
      }
  const int col = begin + quad * 8;
  auto* c = static_cast<uint16_t*>(g.c);
  const auto take = [&](int tile) {
    Raw<bf16, 8> old[kAtOnce][2];
    uint32_t a[kAtOnce][kSteps][4];
#pragma unroll
    for (int m = 0; m < kAtOnce; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = static_cast<int64_t>(tile) + m * 16 + half * 8 + lane / 4;
        if (g.accumulate && row < end && col < g.n) old[m][half] = load_streaming<bf16, 8>(c, row * g.ldc + col);
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int k = s * 16 + h * 8 + quad * 2;
            a[m][s][h * 2 + half] =
                row < end && k < g.k ? *reinterpret_cast<const uint32_t*>(g.a + row * g.lda + k) : 0u;
          }
      }
#pragma unroll
    for (int m = 0; m < kAtOnce; ++m) {
      float sum[4][4] = {};
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_add(sum[j], a[m][s], b[s][j][0], b[s][j][1]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = static_cast<int64_t>(tile) + m * 16 + half * 8 + lane / 4;
        if (row >= end || col >= g.n) continue;
        float y[8], before[8] = {};
        if (g.accumulate) old[m][half].unpack(before);
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = g.alpha * sum[i / 2][half * 2 + i % 2] + before[i];
        store_streaming<bf16, 8>(c, row * g.ldc + col, Raw<bf16, 8>::pack(y));
      }
    }
  };
  for (int share = first; share < end; share += kShares * kRows)
    for (int tile = share; tile < min(share + kRows, end); tile += kAtOnce * 16) take(tile);
}

// ---- few results: a block takes every so many-th 32 rows of an expert, each of its warps every fourth 32 terms; their
// sums are added in the warps' order. Product s of two has the terms 8q + 4s to 8q + 4s + 3 of a lane's place q in its
// quad ----

constexpr int kResultWarps = 4, kResultRows = 32;

// kGroups: of eight columns. Down: the matrix's rows are the terms (kInput).
template <int kGroups, bool Down>
__global__ void __launch_bounds__(kResultWarps * 32, kGroups <= 2   ? 5
                                                     : kGroups <= 4 ? 3
                                                                    : 2)
    few_results_kernel(const __grid_constant__ AdapterArgs g) {
  __shared__ float sums[kResultWarps][kResultRows][kGroups * 8 + 2];
  allow_next_grid();
  wait_for_previous_grid();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, quad = lane % 4;
  const auto expert = static_cast<int>(blockIdx.y);
  const int first = g.first[expert], end = g.first[expert + 1], step = static_cast<int>(gridDim.x) * kResultRows;
  const uint16_t* of_expert = g.b + static_cast<int64_t>(expert) * (Down ? g.k : g.n) * g.ldb;
  for (int tile = first + static_cast<int>(blockIdx.x) * kResultRows; tile < end; tile += step) {
    float sum[2][kGroups][4] = {};
#pragma unroll 2
    for (int at = warp * 32; at < g.k; at += kResultWarps * 32) {
      const int k = at + quad * 8;
      uint4 x[2][2], b[kGroups];
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t row = tile + m * 16 + half * 8 + lane / 4;
          x[m][half] = row < end && k < g.k ? __ldcs(reinterpret_cast<const uint4*>(g.a + row * g.lda + k))
                                            : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const int col = i * 8 + lane / 4;
        b[i] = make_uint4(0, 0, 0, 0);
        if (col >= g.n || k >= g.k) continue;
        if constexpr (Down) {
          const uint16_t* p = of_expert + k * g.ldb + col;
          b[i] = make_uint4(pair(p[0], p[g.ldb]), pair(p[2 * g.ldb], p[3 * g.ldb]), pair(p[4 * g.ldb], p[5 * g.ldb]),
                            pair(p[6 * g.ldb], p[7 * g.ldb]));
        } else {
          b[i] = *reinterpret_cast<const uint4*>(of_expert + col * g.ldb + k);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          multiply_add(sum[m][i], x[m][0].x, x[m][1].x, x[m][0].y, x[m][1].y, b[i].x, b[i].y);
          multiply_add(sum[m][i], x[m][0].z, x[m][1].z, x[m][0].w, x[m][1].w, b[i].z, b[i].w);
        }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(&sums[warp][m * 16 + half * 8 + lane / 4][i * 8 + quad * 2]) =
              make_float2(sum[m][i][half * 2], sum[m][i][half * 2 + 1]);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kResultRows * kGroups * 4; i += kResultWarps * 32) {
      const int r = i / (kGroups * 4), col = i % (kGroups * 4) * 2;
      if (tile + r >= end || col >= g.n) continue;
      float u = 0, v = 0;
#pragma unroll
      for (int w = 0; w < kResultWarps; ++w) {
        const float2 part = *reinterpret_cast<const float2*>(&sums[w][r][col]);
        u += part.x, v += part.y;
      }
      u *= g.alpha, v *= g.alpha;
      auto* c = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(g.c) + static_cast<int64_t>(tile + r) * g.ldc + col);
      if (g.accumulate) u += __uint_as_float(*c << 16), v += __uint_as_float(*c & 0xffff0000u);
      *c = pack_bf16(u, v);
    }
    __syncthreads();
  }
}

// ---- sums over an expert's rows: a block takes 64 columns of the wide side and all rows of an expert, its warps 16
// rows each in turn; their sums are added in the warps' order. Product j has the columns 8i + j ----

constexpr int kSumCols = 64;
// Where a warp's sums lie for the others: the eight columns of a product side by side, so that lanes meet different
// banks.
template <int kSets, bool WideLeft>
struct SumsOfWarp {
  static constexpr int kAcross = WideLeft ? kSets * 16 + 4 : kSumCols + 8;
  float x[(WideLeft ? kSumCols : kSets * 16) * kAcross];
  __device__ __forceinline__ float& at(int rank, int col) {
    const int place = col % 8 * 8 + col / 8;
    return x[WideLeft ? place * kAcross + rank : rank * kAcross + place];
  }
};

// kSets: whether 16 or 32 columns of the narrow side at once. Wide left: the wide side is a (rows of c), else b.
template <int kSets, bool WideLeft>
__global__ void __launch_bounds__(kThreads, kSets == 1 ? 3 : 2) row_sums_kernel(const __grid_constant__ AdapterArgs g) {
  __shared__ SumsOfWarp<kSets, WideLeft> sums[kWarps / 2];
  allow_next_grid();
  wait_for_previous_grid();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, quad = lane % 4;
  const int expert = static_cast<int>(blockIdx.y), rank = static_cast<int>(blockIdx.z) * kSets * 16;
  const int wide_cols = WideLeft ? g.k : g.n, ranks = WideLeft ? g.n : g.k;
  const uint16_t *wide = WideLeft ? g.a : g.b, *narrow = WideLeft ? g.b : g.a;
  const int64_t ld_wide = WideLeft ? g.lda : g.ldb, ld_narrow = WideLeft ? g.ldb : g.lda;
  const int begin = static_cast<int>(blockIdx.x) * kSumCols, col = begin + lane / 4 * 8;
  const int first = g.first[expert], end = g.first[expert + 1];
  float d[kSets][8][4] = {};
  for (int tile = first + warp * 16; tile < end; tile += kWarps * 16) {
    uint32_t x[4][4], z[kSets][4];  // of rows 2q, 2q + 1, 2q + 8, 2q + 9, q the lane's place in its quad
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = tile + quad * 2 + i % 2 + i / 2 * 8;
      const bool there = row < end;
      const uint4 pack = there && col < wide_cols ? *reinterpret_cast<const uint4*>(wide + row * ld_wide + col)
                                                  : make_uint4(0, 0, 0, 0);
      x[i][0] = pack.x, x[i][1] = pack.y, x[i][2] = pack.z, x[i][3] = pack.w;
    }
#pragma unroll
    for (int s = 0; s < kSets; ++s)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int64_t row = tile + quad * 2 + h * 8;
          const int r = rank + s * 16 + half * 8 + lane / 4;
          const uint16_t low = row < end && r < ranks ? narrow[row * ld_narrow + r] : uint16_t{0},
                         high = row + 1 < end && r < ranks ? narrow[(row + 1) * ld_narrow + r] : uint16_t{0};
          z[s][h * 2 + half] = pair(low, high);
        }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t which = j % 2 == 0 ? 0x5410u : 0x7632u;
      const uint32_t top = __byte_perm(x[0][j / 2], x[1][j / 2], which),
                     below = __byte_perm(x[2][j / 2], x[3][j / 2], which);
#pragma unroll
      for (int s = 0; s < kSets; ++s) multiply_add(d[s][j], z[s], top, below);
    }
  }
  // Halves of the warps after one another, so that the sums take half of the room: w and w + 4 first.
  auto each = [&](auto do_this) {
#pragma unroll
    for (int s = 0; s < kSets; ++s)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) do_this(s * 16 + i / 2 * 8 + lane / 4, (quad * 2 + i % 2) * 8 + j, d[s][j][i]);
  };
  auto& mine = sums[warp % (kWarps / 2)];
  if (warp >= kWarps / 2) each([&](int r, int c, float v) { mine.at(r, c) = v; });
  __syncthreads();
  if (warp < kWarps / 2) each([&](int r, int c, float v) { mine.at(r, c) += v; });
  __syncthreads();
  auto* out = static_cast<float*>(g.c);
  for (int i = static_cast<int>(threadIdx.x); i < kSets * 16 * kSumCols; i += kThreads) {
    // Neighbouring threads write neighbouring elements.
    const int r = WideLeft ? i % (kSets * 16) : i / kSumCols, c = WideLeft ? i / (kSets * 16) : i % kSumCols;
    if (rank + r >= ranks || begin + c >= wide_cols) continue;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps / 2; ++w) total += sums[w].at(r, c);
    float* to = WideLeft ? out + (static_cast<int64_t>(expert) * g.k + begin + c) * g.ldc + rank + r
                         : out + (static_cast<int64_t>(expert) * g.k + rank + r) * g.ldc + begin + c;
    *to = g.alpha * total + (g.accumulate ? *to : 0.0f);
  }
}

template <int kSteps>
void few_terms(const AdapterArgs& args, bool is_down, dim3 grid, cudaStream_t stream) {
  launch_dependent(is_down ? few_terms_kernel<kSteps, true> : few_terms_kernel<kSteps, false>, grid, dim3(kThreads), 0,
                   stream, args);
}

template <int kGroups>
void few_results(const AdapterArgs& args, bool is_down, dim3 grid, cudaStream_t stream) {
  launch_dependent(is_down ? few_results_kernel<kGroups, true> : few_results_kernel<kGroups, false>, grid,
                   dim3(kResultWarps * 32), 0, stream, args);
}

template <int kSets>
void row_sums(const AdapterArgs& args, bool wide_left, dim3 grid, cudaStream_t stream) {
  launch_dependent(wide_left ? row_sums_kernel<kSets, true> : row_sums_kernel<kSets, false>, grid, dim3(kThreads), 0,
                   stream, args);
}

bool pairs(const ConstMat& m) { return m.ld % 2 == 0 && reinterpret_cast<uintptr_t>(m.p) % 4 == 0; }

}  // namespace

bool grouped_adapters_cover(const GroupedGemm& g) {
  if (g.a.type != DType::kBF16 || g.b.type != DType::kBF16 || g.experts >= (1 << 16) || g.c.rows >= (1 << 22))
    return false;
  if (g.kind == Grouped::kWeight) {
    const int64_t m = g.a.cols, n = g.b.cols;
    return g.c.type == DType::kF32 && std::min(m, n) <= kFew && wide(m > n ? g.a : g.b);
  }
  const bool down = g.kind == Grouped::kInput;
  if (g.c.type != DType::kBF16 || g.c.cols % 2 != 0 || !pairs(ConstMat(g.c))) return false;
  if (g.c.cols <= kFew) return wide(g.a) && (down || wide(g.b));
  return g.a.cols <= kFew && g.a.cols % 2 == 0 && wide(ConstMat(g.c)) && pairs(g.a) && (down || pairs(g.b));
}

void grouped_adapters(cudaStream_t stream, const GroupedGemm& g) {
  const AdapterArgs args{static_cast<const uint16_t*>(g.a.p),
                         static_cast<const uint16_t*>(g.b.p),
                         g.c.p,
                         g.first,
                         g.a.ld,
                         g.b.ld,
                         g.c.ld,
                         static_cast<int>(g.experts),
                         static_cast<int>(g.c.cols),
                         static_cast<int>(g.a.cols),
                         g.alpha,
                         g.accumulate};
  const bool down = g.kind == Grouped::kInput;
  const auto experts = static_cast<unsigned>(g.experts);
  if (g.kind == Grouped::kWeight) {
    const bool left = g.a.cols > g.b.cols;
    const int64_t ranks = std::min(g.a.cols, g.b.cols), sets = ranks <= 16 ? 1 : 2;
    const dim3 grid(static_cast<unsigned>(ceil_div(std::max(g.a.cols, g.b.cols), kSumCols)), experts,
                    static_cast<unsigned>(ceil_div(ranks, sets * 16)));
    sets == 1 ? row_sums<1>(args, left, grid, stream) : row_sums<2>(args, left, grid, stream);
  } else if (g.c.cols <= kFew) {
    const dim3 grid(kShares * kRows / kResultRows, experts);
    if (g.c.cols <= 16)
      few_results<2>(args, down, grid, stream);
    else if (g.c.cols <= 32)
      few_results<4>(args, down, grid, stream);
    else
      few_results<8>(args, down, grid, stream);
  } else {
    const dim3 grid(static_cast<unsigned>(ceil_div(g.c.cols, kCols)), kShares, experts);
    if (g.a.cols <= 16)
      few_terms<1>(args, down, grid, stream);
    else if (g.a.cols <= 32)
      few_terms<2>(args, down, grid, stream);
    else
      few_terms<4>(args, down, grid, stream);
  }
  check_launch("grouped_adapters");
}

}  // namespace mxt::kernels::cuda
