#include "kernels/cuda/unscaled.h"

#include "kernels/gpu/element.cuh"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/quantize.cuh"

namespace mxt::kernels::cuda {
namespace {

constexpr int kThreads = 256, kPack = 16;

__global__ void __launch_bounds__(kThreads)
    widen_kernel(const uint8_t* q, int64_t ld, bf16* out, int64_t packs, int64_t all) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= all) return;
  const int64_t row = i / packs, col = i % packs * kPack;
  const uint4 in = *reinterpret_cast<const uint4*>(q + row * ld + col);
  const uint32_t words[4] = {in.x, in.y, in.z, in.w};
  uint32_t wide[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint32_t pair = words[k / 2] >> (k % 2 * 16);
    wide[k] = pack_bf16(from_e4m3(pair & 0xffu), from_e4m3(pair >> 8 & 0xffu));
  }
  auto* to = reinterpret_cast<uint4*>(out + i * kPack);
  to[0] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
  to[1] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const T* part, int64_t ld_part, const float* rows, const float* cols, bool accumulate, T* c,
                 int64_t ldc, int64_t n) {
  const int64_t row = blockIdx.y, col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= n) return;
  const float scale = (rows ? rows[row] : 1.0f) * (cols ? cols[col] : 1.0f);
  T* to = c + row * ldc + col;
  const float v = to_float(part[row * ld_part + col]) * scale;
  *to = from_float<T>(accumulate ? to_float(*to) + v : v);
}

template <typename T>
void scale_as(cudaStream_t stream, const ConstMat& part, const float* rows, const float* cols, bool accumulate,
              const Mat& c) {
  constexpr int64_t kMostRows = 65535;
  for (int64_t first = 0; first < c.rows; first += kMostRows) {
    const dim3 grid(static_cast<unsigned>(ceil_div(c.cols, kThreads)),
                    static_cast<unsigned>(std::min(kMostRows, c.rows - first)));
    scale_kernel<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(part.p) + first * part.ld, part.ld,
                                                   rows ? rows + first : nullptr, cols, accumulate,
                                                   static_cast<T*>(c.p) + first * c.ld, c.ld, c.cols);
  }
}

}  // namespace

void widen_e4m3(cudaStream_t stream, const ConstMat& q, void* out) {
  const int64_t packs = q.cols / kPack, all = q.rows * packs;
  if (all == 0) return;
  require(even_rows(q), "rows in E4M3 begin at whole sixteens");
  widen_kernel<<<static_cast<unsigned>(ceil_div(all, kThreads)), kThreads, 0, stream>>>(
      static_cast<const uint8_t*>(q.p), q.ld, static_cast<bf16*>(out), packs, all);
  check_launch("widen_e4m3");
}

void scale_product(cudaStream_t stream, const ConstMat& part, const float* row_scale, const float* col_scale,
                   bool accumulate, const Mat& c) {
  if (c.rows == 0 || c.cols == 0) return;
  if (c.type == DType::kBF16)
    scale_as<bf16>(stream, part, row_scale, col_scale, accumulate, c);
  else
    scale_as<float>(stream, part, row_scale, col_scale, accumulate, c);
  check_launch("scale_product");
}

}  // namespace mxt::kernels::cuda
