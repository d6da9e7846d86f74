// One block takes 16 or 32 rows of W; its eight warps share k among them, units of 128 columns in turn, and multiply with the tensor
// cores: W's rows are the 16 rows of a product, x's rows its 8 columns. A thread loads 16 bytes of a row of W and of a row of x and
// uses them as the fragments of two products: which k a product takes first does not matter as long as both sides agree.
#include "kernels/cuda/thin.h"

#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kWarps = 8, kChunk = 32, kUnit = 4 * kChunk, kMostRows = 64;

struct ThinArgs {
  const bf16 *x, *w;
  void* y;
  const void* bias;
  int64_t ldx, ldw, ldy, m, n, k;
  float alpha;
  bool accumulate, bias_bf16, constant;
};

__device__ __forceinline__ void multiply_add(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// W is read once: past the first-level cache.
__device__ __forceinline__ uint4 read_once(const bf16* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// kTiles · 16 rows of W a block, kPanels · 8 rows of x.
template <typename Y, int kTiles, int kPanels>
__global__ __launch_bounds__(kWarps * 32, kPanels <= 2 ? 3 : 1) void thin_kernel(const __grid_constant__ ThinArgs a) {
  __shared__ float sums[kWarps][16][kPanels * 8 + 1];
  next_may_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (16 * kTiles);
  constexpr bool kEarly = kPanels <= 2;  // with more, registers are short and the compiler does better on its own
  const bf16 *w[kTiles][2], *x[kPanels];
  for (int tile = 0; tile < kTiles; ++tile)
    for (int half = 0; half < 2; ++half) {
      const int64_t row = first + tile * 16 + half * 8 + g;
      w[tile][half] = a.w + (row < a.n ? row : a.n - 1) * a.ldw + t * 8;  // rows past the end: computed, not stored
    }
  for (int p = 0; p < kPanels; ++p) x[p] = a.x + (p * 8 + g) * a.ldx + t * 8;
  float sum[kTiles][kPanels][4] = {};
  // Four chunks of W on their way: as soon as one is used, the same of the next unit is asked for.
  uint4 wide[4][kTiles][2];
  const auto fetch = [&](int c, int64_t k) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bf16* from = w[tile][half] + k;
        if (k + t * 8 >= a.k) wide[c][tile][half] = make_uint4(0, 0, 0, 0);
        else if constexpr (kEarly) wide[c][tile][half] = read_once(from);
        else wide[c][tile][half] = __ldcs(reinterpret_cast<const uint4*>(from));
      }
  };
  int64_t k0 = warp * static_cast<int64_t>(kUnit);
  const auto fetch_unit = [&] {
#pragma unroll
    for (int c = 0; c < 4; ++c) fetch(c, k0 + c * kChunk);
  };
  // While the kernel before this one runs, W is on its way already: a unit into registers where nobody writes W meanwhile, the next two
  // (else all three) into the second-level cache, where a line that is written stays right.
  const bool early = kEarly && a.constant;
  if (early) fetch_unit();
  for (int u = early ? 1 : 0; u < 3; ++u) {
    const int64_t row = first + lane / 2, k = k0 + u * (kWarps * kUnit) + lane % 2 * 64;
    for (int tile = 0; tile < kTiles; ++tile)
      if (row + tile * 16 < a.n && k < a.k) asm volatile("prefetch.global.L2 [%0];" ::"l"(a.w + (row + tile * 16) * a.ldw + k));
  }
  previous_done();
  if (!early) fetch_unit();

  for (; k0 < a.k; k0 += kWarps * kUnit) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int64_t k = k0 + c * kChunk;
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (p * 8 + g < a.m && k + t * 8 < a.k) v = *reinterpret_cast<const uint4*>(x[p] + k);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 top = wide[c][tile][0], low = wide[c][tile][1];
          multiply_add(sum[tile][p], top.x, low.x, top.y, low.y, v.x, v.y);
          multiply_add(sum[tile][p], top.z, low.z, top.w, low.w, v.z, v.w);
        }
      }
      fetch(c, k + kWarps * kUnit);
    }
  }

  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile > 0) __syncthreads();
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][g + i / 2 * 8][p * 8 + t * 2 + i % 2] = sum[tile][p][i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 16 * kPanels * 8; i += kWarps * 32) {
      const int row = i / 16;
      const int64_t n = first + tile * 16 + i % 16;
      if (row >= a.m || n >= a.n) continue;
      float v = 0;
      for (int s = 0; s < kWarps; ++s) v += sums[s][i % 16][row];
      v *= a.alpha;
      if (a.bias) v += a.bias_bf16 ? to_float(static_cast<const bf16*>(a.bias)[n]) : static_cast<const float*>(a.bias)[n];
      Y* to = static_cast<Y*>(a.y) + row * a.ldy + n;
      if (a.accumulate) v += to_float(*to);
      *to = from_float<Y>(v);
    }
  }
}

template <typename Y, int kTiles, int kPanels>
void launch(cudaStream_t stream, const ThinArgs& a) {
  launch_early(thin_kernel<Y, kTiles, kPanels>, dim3(static_cast<unsigned>(ceil_div(a.n, 16 * kTiles))), dim3(kWarps * 32), stream, a);
}
template <typename Y>
void launch(cudaStream_t stream, const ThinArgs& a) {
  if (a.m <= 8) launch<Y, 1, 1>(stream, a);
  else if (a.m <= 16) launch<Y, 1, 2>(stream, a);
  else if (a.m <= 32) launch<Y, 2, 4>(stream, a);
  else launch<Y, 2, 8>(stream, a);
}

bool aligned(const ConstMat& m) { return reinterpret_cast<uintptr_t>(m.p) % 16 == 0 && m.ld % 8 == 0; }

}  // namespace

bool thin_covers(const Gemm& g) {
  return !g.trans_a && g.trans_b && g.a.type == DType::kBF16 && g.b.type == DType::kBF16 && (g.c.type == DType::kBF16 || g.c.type == DType::kF32) &&
         g.c.rows <= kMostRows && g.a.cols % 8 == 0 && aligned(g.a) && aligned(g.b) && (g.bias == nullptr || g.bias_type == DType::kBF16 || g.bias_type == DType::kF32);
}

void thin_gemm(cudaStream_t stream, const Gemm& g) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  const ThinArgs a{static_cast<const bf16*>(g.a.p), static_cast<const bf16*>(g.b.p), g.c.p, g.bias, g.a.ld, g.b.ld, g.c.ld, g.c.rows, g.c.cols, g.a.cols,
                   g.alpha, g.accumulate, g.bias_type == DType::kBF16, g.b_constant};
  if (g.c.type == DType::kBF16) launch<bf16>(stream, a);
  else launch<float>(stream, a);
  check_launch("thin_gemm");
}

}  // namespace mxt::kernels::cuda
