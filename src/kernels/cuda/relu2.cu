// One warpgroup asks for copies, two multiply 64 rows each; the copies for the next tile run while this one is stored.
// What the gradient is multiplied with comes through the same stages, after the operands.
#include <algorithm>

#include "kernels/cuda/relu2.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tiles_128x256.cuh"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRows = kTileRows, kCols = kTileCols, kCluster = kTileCluster, kPart = kTilePart;
constexpr int kTerms = 64, kStages = 4, kThreads = 3 * 128;
constexpr int kLeftBytes = kRows * kTerms * 2, kRightBytes = kCols * kTerms * 2;
constexpr int kBoxBytes = 64 * 128;    // 64 terms of 64 columns, where the right operand's rows are summed over
constexpr int kOfBytes = kRows * 128;  // 128 rows of 64 columns of relu2_of

struct Args {
  int m, n, steps;  // steps: stages of operands
  TileOrder order;
};

struct Shared {
  unsigned char a[kStages][kLeftBytes], b[kStages][kRightBytes];
  unsigned char out[8][2][kTileOutBytes];  // of each warp
  Mbarrier full[kStages], empty[kStages];
};
static_assert(kOfBytes * 2 == kRightBytes);

// Of a pair of results: 2√y beside each.
__device__ __forceinline__ uint32_t through(float left, float right, uint32_t y) {
  float l, r;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(l) : "f"(__uint_as_float(y << 16)));
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__uint_as_float(y & 0xffff0000u)));
  return pack_bf16(left * 2.0f * l, right * 2.0f * r);
}
__device__ __forceinline__ uint32_t squares(float left, float right) {
  const float l = fmaxf(left, 0.0f), r = fmaxf(right, 0.0f);
  return pack_bf16(l * l, r * r);
}

// Forward x·Wᵀ, or Grad: dy·W, whose right operand's rows are summed over, multiplied by 2√y.
template <bool Grad>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    relu2_kernel(const __grid_constant__ Args a, const __grid_constant__ CUtensorMap a_map,
                 const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap of_map,
                 const __grid_constant__ CUtensorMap c_map) {
  extern __shared__ __align__(1024) unsigned char space[];
  Shared& s = *reinterpret_cast<Shared*>(space);
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
        const int row = (at.pair * kCluster + rank) * kRows, col = at.column * kCols;
        for (int k = 0; k < a.steps; ++k, ring.advance()) {
          const int i = ring.slot, t = k * kTerms, mine = col + rank * kPart;
          s.empty[i].wait(ring.parity ^ 1);
          s.full[i].arrive_and_expect(kLeftBytes + kRightBytes);
          unsigned char* right = s.b[i] + rank * (kPart * 128);
          copy_box(s.a[i], a_map, t, row, &s.full[i]);
          if constexpr (Grad) {
            for (int box = 0; box < kPart / 64; ++box)
              copy_box(right + box * kBoxBytes, b_map, mine + box * 64, t, &s.full[i], (1 << kCluster) - 1);
          } else {
            copy_box(right, b_map, t, mine, &s.full[i], (1 << kCluster) - 1);
          }
        }
        if constexpr (Grad)
          for (int half = 0; half < 2; ++half, ring.advance()) {
            const int i = ring.slot;
            s.empty[i].wait(ring.parity ^ 1);
            s.full[i].arrive_and_expect(kRightBytes);
            for (int box = 0; box < 2; ++box)
              copy_box(s.b[i] + box * kOfBytes, of_map, col + (half * 2 + box) * 64, row, &s.full[i]);
          }
      }
    }
  } else {
    take_registers<240>();
    const int w = group - 1, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;
    auto release = [&](int slot) { have_read(s.empty[slot], 1 + w, kCluster); };
    for (int tile = first; tile < tiles; tile += clusters) {
      const TilePlace at = place_of(tile, a.order);
      const int row = (at.pair * kCluster + rank) * kRows + w * 64 + warp * 16, col = at.column * kCols;
      float d[128];
      int last = 0;
      for (int k = 0; k < a.steps; ++k, ring.advance()) {
        const int i = ring.slot;
        s.full[i].wait(ring.parity);
        const uint64_t left = across(shared_address(s.a[i]) + static_cast<uint32_t>(w * kLeftBytes / 2)),
                       right = Grad ? down(shared_address(s.b[i]), kBoxBytes) : across(shared_address(s.b[i]));
        begin_products();
#pragma unroll
        for (int c = 0; c < 4; ++c)
          multiply_64x256<Grad>(d, further(left, c * 32), further(right, c * (Grad ? 2048 : 32)), k + c);
        end_group();
        if (k > 0) {
          wait_groups<1>();
          release(last);
        }
        last = i;
      }
      wait_groups<0>();
      release(last);
#pragma unroll
      for (int box = 0; box < 4; ++box) {
        if constexpr (Grad)
          if (box % 2 == 0) s.full[ring.slot].wait(ring.parity);
        store_results(s.out[w * 4 + warp][box % 2], c_map, row, col + box * 64, a.m, a.n, lane,
                      [&](int j, uint32_t place, uint32_t(&y)[4]) {
                        const float* f = d + box * 32 + j * 8;
                        if constexpr (Grad)
                          load_matrices(
                              y,
                              shared_address(s.b[ring.slot] + box % 2 * kOfBytes + (w * 64 + warp * 16) * 128) + place);
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                          y[i] = Grad ? through(f[i * 2], f[i * 2 + 1], y[i]) : squares(f[i * 2], f[i * 2 + 1]);
                      });
        if constexpr (Grad)
          if (box % 2 == 1) {
            release(ring.slot);
            ring.advance();
          }
      }
    }
    if (lane == 0) boxes_read<0>();
  }
  sync_cluster();  // nobody leaves while another's copies or arrivals may still come here
}

bool plain(const ConstMat& m) { return m.type == DType::kBF16 && even_rows(m); }

}  // namespace

bool relu2_gemm_covers(const Gemm& g) {
  return device::card().warpgroups && plain(g.a) && plain(g.b) && plain(g.c) && (g.relu2 || plain(g.relu2_of)) &&
         g.a.cols > 0 && g.c.rows < (1 << 30) && g.c.cols < (1 << 30);
}

void relu2_gemm(cudaStream_t stream, const Gemm& g) {
  if (g.c.rows == 0 || g.c.cols == 0) return;
  const bool grad = !g.relu2;
  Args a{};
  a.m = static_cast<int>(g.c.rows), a.n = static_cast<int>(g.c.cols);
  a.steps = static_cast<int>(ceil_div(g.a.cols, kTerms));
  a.order = tile_order(g.c.rows, g.c.cols, g.a.cols * 2);
  const CUtensorMap left = boxes_of(g.a, 64, kRows), right = boxes_of(g.b, 64, grad ? 64 : kPart),
                    out = boxes_of(g.c, 64, 16);
  const CUtensorMap of = grad ? boxes_of(g.relu2_of, 64, kRows) : left;
  const auto kernel = grad ? relu2_kernel<true> : relu2_kernel<false>;
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared))) ==
              cudaSuccess,
          "products that end in ReLU² need 227 KB of shared memory");
  const int64_t clusters = std::min<int64_t>(static_cast<int64_t>(a.order.pairs) * a.order.columns, kTileClusters);
  launch_dependent(kernel, dim3(static_cast<unsigned>(kCluster * clusters)), dim3(kThreads), sizeof(Shared), stream, a,
                   left, right, of, out);
  check_launch("relu2_gemm");
}

}  // namespace mxt::kernels::cuda
