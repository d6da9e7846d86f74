#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/gpu/gpu.h"

namespace mxt::kernels::cuda {

CUtensorMap boxes_of(const ConstMat& m, int cols, int rows) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    require(f != nullptr && found == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(f);
  }();
  MXT_ASSERT(cols * static_cast<int>(size_of(m.type)) == 128);
  CUtensorMap map;
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows)},
                   stride[1] = {static_cast<cuuint64_t>(m.ld) * size_of(m.type)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(cols), static_cast<cuuint32_t>(rows)}, step[2] = {1, 1};
  const auto type = m.type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  require(encode(&map, type, 2, const_cast<void*>(m.p), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS,
          "cuTensorMapEncodeTiled refused a matrix");
  return map;
}

}  // namespace mxt::kernels::cuda
