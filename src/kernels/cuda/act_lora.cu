// A block takes 32 tokens over all columns, a warp 64 columns of them at a time. What a lane computes of y is already
// what the product wants of its first operand: the terms of a sum may come in any order, so a lane's eight neighbouring
// columns stand for the ones that the instruction names, in y and in A alike. The warps' sums are added in their order.
#include "kernels/cuda/lora.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/mma.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kRank = 16, kWarps = 8, kRows = 32, kLaneRows = kRows / 8, kPart = 32, kCols = 64;

struct Args {
  const bf16 *x, *a;
  bf16 *y, *z;
  int64_t tokens, cols, ld_x, ld_a, ld_y, ld_z;
};

__device__ __forceinline__ uint32_t word(const Raw<bf16, 8>& r, int i) {
  return i == 0 ? r.x.x : i == 1 ? r.x.y : i == 2 ? r.x.z : r.x.w;
}

__global__ __launch_bounds__(kWarps * 32, 2) void act_lora_kernel(const __grid_constant__ Args a) {
  next_may_start();
  previous_done();
  __shared__ float sums[kWarps][kRows * kRank];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows, token = first + lane / 4;
  float z[kRows / 16][2][4] = {};
  for (int64_t c = warp * kCols + lane % 4 * 8; c < a.cols; c += kWarps * kCols) {
#pragma unroll 1
    for (int part = 0; part < kCols / kPart; ++part) {
      const int64_t at = c + part * kPart;
      Raw<bf16, 8> gate[kLaneRows]{}, up[kLaneRows]{}, down[2];
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i)
        if (token + 8 * i < a.tokens) {
          gate[i] = load<bf16, 8>(a.x, (token + 8 * i) * a.ld_x + at);
          up[i] = load<bf16, 8>(a.x, (token + 8 * i) * a.ld_x + a.cols + at);
        }
#pragma unroll
      for (int i = 0; i < 2; ++i) down[i] = load<bf16, 8>(a.a, (lane / 4 + 8 * i) * a.ld_a + at);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        float g[8], u[8];
        gate[i].unpack(g), up[i].unpack(u);
#pragma unroll
        for (int k = 0; k < 8; ++k)  // as act_lora_grad has it
          g[k] = g[k] * __fdividef(1.0f, 1.0f + __expf(-g[k])) * u[k];
        gate[i] = Raw<bf16, 8>::pack(g);
        if (token + 8 * i < a.tokens) store_streaming<bf16, 8>(a.y, (token + 8 * i) * a.ld_y + at, gate[i]);
      }
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r)
#pragma unroll
        for (int k = 0; k < 4; k += 2)
#pragma unroll
          for (int t = 0; t < 2; ++t)
            multiply_add(z[r][t], word(gate[2 * r], k), word(gate[2 * r + 1], k), word(gate[2 * r], k + 1),
                         word(gate[2 * r + 1], k + 1), word(down[t], k), word(down[t], k + 1));
    }
  }
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i)
#pragma unroll
    for (int t = 0; t < 2; ++t)
      *reinterpret_cast<float2*>(&sums[warp][(lane / 4 + 8 * i) * kRank + t * 8 + lane % 4 * 2]) =
          make_float2(z[i / 2][t][i % 2 * 2], z[i / 2][t][i % 2 * 2 + 1]);
  __syncthreads();
#pragma unroll
  for (int at = thread; at < kRows * kRank; at += kWarps * 32) {
    if (first + at / kRank >= a.tokens) return;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sums[w][at];
    a.z[(first + at / kRank) * a.ld_z + at % kRank] = from_float<bf16>(total);
  }
}

}  // namespace

bool act_lora_covers(const ActLora& c) {
  const Act& a = c.act;
  if (a.kind != Activation::kSwiGlu || a.held.q.p != nullptr || c.a.rows != kRank || a.y.cols % kCols != 0) return false;
  for (const ConstMat& m : {a.x, ConstMat(a.y), c.a, ConstMat(c.z)})
    if (m.type != DType::kBF16) return false;
  return wide(a.x) && wide(a.y) && wide(c.a);
}

void act_lora(cudaStream_t stream, const ActLora& c) {
  Args a{};
  a.x = static_cast<const bf16*>(c.act.x.p), a.a = static_cast<const bf16*>(c.a.p);
  a.y = static_cast<bf16*>(c.act.y.p), a.z = static_cast<bf16*>(c.z.p);
  a.tokens = c.act.y.rows, a.cols = c.act.y.cols;
  a.ld_x = c.act.x.ld, a.ld_a = c.a.ld, a.ld_y = c.act.y.ld, a.ld_z = c.z.ld;
  if (a.tokens == 0) return;
  launch_early(act_lora_kernel, dim3(static_cast<unsigned>(ceil_div(a.tokens, kRows))), dim3(kWarps * 32), 0, stream, a);
  check_launch("act_lora");
}

}  // namespace mxt::kernels::cuda
